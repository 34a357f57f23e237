-- The flow at a glance. Every query here is repeated every second while a page is open, so it is bounded and uses an index.

-- name: committed
-- The job's commits in steps of seconds. `step` counts back from now.
SELECT floor(extract(epoch FROM now() - b.created_at) / %(step_s)s)::integer AS step, sum(b.input_events)::bigint AS input_events,
       sum(b.sessions)::bigint AS sessions, sum(b.output_events)::bigint AS output_events, sum(b.dead_letters)::bigint AS dead_letters
FROM outbox.batch b
WHERE b.created_at > now() - make_interval(secs => %(span_s)s) AND b.kind <> 'requeue'
GROUP BY 1

-- name: delivered
SELECT floor(extract(epoch FROM now() - d.committed_at) / %(step_s)s)::integer AS step, count(*) AS transactions,
       sum(d.sessions)::bigint AS sessions, sum(d.events)::bigint AS events
FROM outbox.delivery d
WHERE d.committed_at > now() - make_interval(secs => %(span_s)s) AND d.kind = 'delivery'
GROUP BY 1

-- name: newest
SELECT n.batch_id, n.created_at, extract(epoch FROM now() - n.created_at)::double precision AS age_s,
       (SELECT count(*) FROM outbox.generation) AS generations, now() AS at
FROM (SELECT b.batch_id, b.created_at FROM outbox.batch b ORDER BY b.batch_id DESC LIMIT 1) n

-- name: services
SELECT s.service, s.state, s.host, s.pid, s.started_at, s.seen_at, s.detail
FROM outbox.audit_service s
ORDER BY s.service DESC, s.started_at DESC NULLS LAST
LIMIT 100

-- name: interrupted_replays
SELECT r.replay_id FROM outbox.audit_replay r WHERE r.state = 'interrupted' ORDER BY r.replay_id LIMIT 20

-- name: latency_range
-- The batches in the deliveries that `latency` reads.
SELECT min(d.after_batch) AS from_batch, max(d.to_batch) AS to_batch
FROM (
    SELECT n.after_batch, n.to_batch FROM outbox.delivery n
    WHERE n.kind = 'delivery' AND n.sessions > 0 AND n.committed_at > now() - make_interval(secs => %(span_s)s)
    ORDER BY n.committed_at DESC LIMIT %(deliveries)s
) d

-- name: latency
-- The time from a session's end event until its outputs were delivered, for up to %(rows)s rows of each of the newest deliveries, from the
-- index on the lane's cursor. `ended`: the end event's time as the job read it; a time in the future, or on another day, is not used.
SELECT count(*) AS sessions,
       percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY m.delivered_s) AS delivered_s,
       percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY m.ended_s) FILTER (WHERE m.ended_s BETWEEN -5 AND 86400) AS ended_s,
       count(*) FILTER (WHERE m.ended_s BETWEEN -5 AND 86400) AS timed
FROM (
    SELECT d.* FROM outbox.delivery d
    WHERE d.kind = 'delivery' AND d.sessions > 0 AND d.committed_at > now() - make_interval(secs => %(span_s)s)
    ORDER BY d.committed_at DESC LIMIT %(deliveries)s
) d
CROSS JOIN LATERAL (
    SELECT o.batch_id, o.session_ended_ms
    FROM outbox.session_output o
    -- batch_id is compared twice: the row comparison starts in the index where the delivery began, the plain one prunes partitions.
    WHERE o.lane = d.lane AND o.batch_id >= d.after_batch AND o.batch_id <= d.to_batch
      AND o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s
      AND (o.batch_id, o.session_key) > (d.after_batch + (d.after_key IS NULL)::integer, coalesce(d.after_key, ''))
      AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key)
    ORDER BY o.batch_id, o.session_key LIMIT %(rows)s
) o
JOIN outbox.batch b ON b.batch_id = o.batch_id
CROSS JOIN LATERAL unnest(o.session_ended_ms) AS e (ended_ms)
CROSS JOIN LATERAL (
    SELECT extract(epoch FROM d.committed_at - b.created_at)::double precision AS delivered_s,
           (extract(epoch FROM d.committed_at) - e.ended_ms / 1000.0)::double precision AS ended_s
) m

-- name: input
SELECT i.topic, i.partition, i.read_to, i.open_from, i.age FROM outbox.audit_input i ORDER BY i.topic, i.partition LIMIT 200
