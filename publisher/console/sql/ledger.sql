-- Runs, generations and batches.

-- name: runs
SELECT r.number, r.run_id, r.generation, r.restored, r.attempt, r.host, r.pid, r.started_at, r.ended_at, r.ended_because, r.rebuild_offsets, r.explanation
FROM outbox.run r
WHERE r.number < %(before)s
ORDER BY r.number DESC
LIMIT %(rows)s

-- name: generations
SELECT g.generation, g.reason, g.policy, g.revision, g.created_at, g.from_generation, g.from_batch, g.savepoint, g.explanation
FROM outbox.generation g
WHERE g.generation < %(before)s
ORDER BY g.generation DESC
LIMIT %(rows)s

-- name: savepoints
SELECT s.name, s.generation, s.batch_id, s.revision, s.created_at
FROM outbox.savepoint s
WHERE s.deleted_at IS NULL
ORDER BY s.savepoint_id DESC
LIMIT %(rows)s

-- name: assembly
-- The assembly description of the newest generation: its rules for sessions.
SELECT a.key AS name, a.value::text AS value
FROM (SELECT g.assembly FROM outbox.generation g ORDER BY g.generation DESC LIMIT 1) g
CROSS JOIN LATERAL jsonb_each(g.assembly) AS a (key, value)
ORDER BY a.key

-- name: open_after
-- The open state after a batch, summed over all partitions.
SELECT coalesce(sum((p.value ->> 'sessions')::bigint), 0)::bigint AS sessions, coalesce(sum((p.value ->> 'bytes')::bigint), 0)::bigint AS bytes
FROM outbox.batch b
CROSS JOIN LATERAL jsonb_each(b.open_state) AS t (topic_id, partitions)
CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, value)
WHERE b.batch_id = %(batch_id)s

-- name: batches
-- A batch counts as delivered once every lane has passed it. The time is that of the last delivery that reached the batch.
SELECT b.batch_id, b.kind, b.generation, b.run_id, b.spark_batch, b.input_events, b.sessions, b.output_events, b.dead_letters, b.output_bytes, b.created_at,
       d.delivered_at, extract(epoch FROM d.delivered_at - b.created_at)::double precision AS delivered_s,
       b.batch_id <= p.through_batch AS is_delivered
FROM (SELECT * FROM outbox.batch n WHERE n.batch_id < %(before)s ORDER BY n.batch_id DESC LIMIT %(rows)s) b
CROSS JOIN (SELECT coalesce(min(CASE WHEN l.stopped_why = 'resuming' THEN l.from_batch - 1 ELSE l.through_batch END)
                 FILTER (WHERE l.stopped_why = 'resuming' OR NOT l.ended), max(l.through_batch)) AS through_batch FROM outbox.lane_position l) p
LEFT JOIN LATERAL (
    SELECT max(n.committed_at) AS delivered_at FROM (
        SELECT e.committed_at FROM outbox.delivery e
        WHERE e.kind = 'delivery' AND e.sessions > 0 AND int8range(LEAST(e.after_batch, e.to_batch), e.to_batch, '[]') @> b.batch_id
          AND (e.after_batch < b.batch_id OR e.after_key IS NOT NULL)
        LIMIT 2000) n
) d ON true
ORDER BY b.batch_id DESC

-- name: batch
SELECT b.batch_id, b.kind, b.generation, b.run_id, b.spark_batch, b.part, b.commit_id, b.input_events, b.sessions, b.output_events, b.dead_letters,
       b.duplicate_events, b.output_bytes, b.transform_fingerprint, b.created_at, b.start_offsets, b.end_offsets
FROM outbox.batch b
WHERE b.batch_id = %(batch_id)s

-- name: batch_latency
-- As `latency` of the flow, for one batch.
SELECT count(*) AS sessions,
       percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY m.delivered_s) AS delivered_s,
       percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY m.ended_s) FILTER (WHERE m.ended_s BETWEEN -5 AND 86400) AS ended_s,
       count(*) FILTER (WHERE m.ended_s BETWEEN -5 AND 86400) AS timed
FROM (
    SELECT o.lane, o.batch_id, o.session_key, o.session_ended_ms FROM outbox.batch_rows(%(batch_id)s, %(batch_id)s) o LIMIT %(rows)s
) o
JOIN outbox.batch b ON b.batch_id = o.batch_id
CROSS JOIN LATERAL (
    -- OFFSET 0 makes Postgres use the index of batches alone; with the lane as well, it would read every delivery of the lane.
    SELECT min(d.committed_at) AS committed_at
    FROM (SELECT * FROM outbox.delivery n WHERE int8range(LEAST(n.after_batch, n.to_batch), n.to_batch, '[]') @> o.batch_id OFFSET 0) d
    WHERE d.lane = o.lane AND d.kind = 'delivery'
      AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key)
) d
CROSS JOIN LATERAL unnest(o.session_ended_ms) AS e (ended_ms)
CROSS JOIN LATERAL (
    SELECT extract(epoch FROM d.committed_at - b.created_at)::double precision AS delivered_s,
           (extract(epoch FROM d.committed_at) - e.ended_ms / 1000.0)::double precision AS ended_s
) m
WHERE d.committed_at IS NOT NULL

-- name: batch_sessions
-- The rows of a batch, lane by lane, in the order of the index.
SELECT r.lane, r.session_key, r.topic_id, r.partition, r.start_offset, r.end_offset, r.events, r.outputs
FROM (
    SELECT o.lane, o.session_key, s.*
    FROM generate_series(0, (SELECT max(e.lanes) FROM outbox.lane_epoch e) - 1) AS n (lane)
    CROSS JOIN LATERAL (
        SELECT x.lane, x.session_key, x.session_topic_ids, x.session_partitions, x.session_starts, x.session_ends, x.session_events, x.session_outputs
        FROM outbox.session_output x
        WHERE x.lane = n.lane AND x.batch_id = %(batch_id)s AND (x.lane, x.session_key) > (%(lane)s, %(after)s)
        ORDER BY x.batch_id, x.session_key LIMIT %(rows)s
    ) o
    CROSS JOIN LATERAL unnest(o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends, o.session_events, o.session_outputs)
        AS s (topic_id, partition, start_offset, end_offset, events, outputs)
    WHERE n.lane >= %(lane)s
) r
ORDER BY r.lane, r.session_key, r.end_offset
LIMIT %(rows)s

-- name: findings
-- The findings of `audit_reconciliation` for a range of batches.
SELECT r.check_name, r.severity, r.epoch, r.lane, r.batch_id, r.session_key, r.detail
FROM outbox.audit_reconcile(%(from_batch)s, %(to_batch)s) r
LIMIT %(rows)s

-- name: last_restore
-- The newest generation that a person's restore opened, and its results. Both counts cover at most %(batches)s batches.
-- `earlier`: the outputs between the savepoint and the restore, which a reissue computes again. A savepoint's name may have been used
-- before.
WITH restore AS (
    SELECT g.generation, g.reason, g.policy, g.revision, g.created_at, g.from_generation, g.from_batch, g.savepoint, g.explanation,
           (SELECT min(b.batch_id) FROM outbox.batch b WHERE b.generation = g.generation AND b.kind = 'stream') AS first_batch,
           (SELECT max(n.generation) FROM outbox.generation n) AS newest_generation, s.savepoint_generation, s.savepoint_batch
    FROM outbox.generation g
    LEFT JOIN LATERAL (
        SELECT n.generation AS savepoint_generation, coalesce(n.batch_id, 0) AS savepoint_batch FROM outbox.savepoint n
        WHERE n.name = g.savepoint AND n.created_at <= g.created_at ORDER BY n.savepoint_id DESC LIMIT 1
    ) s ON true
    WHERE g.reason IN ('savepoint', 'skip', 'requested', 'fork')
    ORDER BY g.generation DESC LIMIT 1
)
SELECT r.*, since.batches AS since_batches, since.sessions AS since_sessions, since.outputs AS since_outputs, since.letters AS since_letters,
       earlier.batches AS earlier_batches, earlier.sessions AS earlier_sessions, earlier.outputs AS earlier_outputs
FROM restore r
CROSS JOIN LATERAL (
    SELECT count(*) AS batches, coalesce(sum(b.sessions), 0)::bigint AS sessions, coalesce(sum(b.output_events), 0)::bigint AS outputs,
           coalesce(sum(b.dead_letters), 0)::bigint AS letters
    FROM (SELECT n.sessions, n.output_events, n.dead_letters FROM outbox.batch n
          WHERE n.generation = r.generation AND n.kind = 'stream' ORDER BY n.batch_id LIMIT %(batches)s) b
) since
CROSS JOIN LATERAL (
    SELECT count(*) AS batches, coalesce(sum(b.sessions), 0)::bigint AS sessions, coalesce(sum(b.output_events), 0)::bigint AS outputs
    FROM (SELECT n.sessions, n.output_events FROM outbox.batch n
          WHERE n.batch_id > r.savepoint_batch AND n.batch_id < coalesce(r.first_batch, 9223372036854775807) AND n.generation < r.generation
          ORDER BY n.batch_id LIMIT %(batches)s) b
) earlier
