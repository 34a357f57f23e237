-- Signs of trouble that have no page of their own. Each query is repeated every second while a page is open, so it is bounded and uses an
-- index.

-- name: open_letters
-- Open letters by reason, counted up to a limit: of the last seconds only, or all.
SELECT r.reason, (SELECT count(*) FROM (
    SELECT FROM outbox.dead_letter d
    WHERE d.state = 'open' AND d.reason = r.reason
      AND d.created_at > coalesce(now() - make_interval(secs => %(span_s)s::double precision), '-infinity') LIMIT %(count_limit)s) n) AS letters
FROM unnest(ARRAY['malformed', 'no_start', 'restarted', 'timed_out', 'too_large', 'transform_failed']) AS r (reason)

-- name: of_delivery
-- The age of a partition is the age of its newest batch, as for retention.
SELECT (SELECT r.failed FROM outbox.retention r) AS retention_failed,
       extract(epoch FROM now() - (SELECT d.committed_at FROM outbox.delivery d ORDER BY d.committed_at DESC LIMIT 1))::double precision AS delivered_s_ago,
       extract(epoch FROM now() - (
           SELECT b.created_at FROM outbox.batch b
           WHERE b.batch_id <= (SELECT min(p.to_batch) FROM outbox.output_partition p WHERE NOT p.detaching)
           ORDER BY b.batch_id DESC LIMIT 1))::double precision AS oldest_partition_s

-- name: of_job
-- `stopped`: whether the run ended because somebody asked for it.
SELECT (SELECT count(*) FROM (SELECT r.ended_at, r.ended_because FROM outbox.run r ORDER BY r.number DESC LIMIT 20) n
        WHERE n.ended_because <> 'stopped' AND n.ended_at > now() - make_interval(secs => %(span_s)s)) AS failed_runs,
       (SELECT max((p.value ->> 'bytes')::bigint)
        FROM (SELECT b.open_state FROM outbox.batch b
              WHERE b.kind = 'stream' AND b.generation = (SELECT max(g.generation) FROM outbox.generation g)
              ORDER BY b.batch_id DESC LIMIT 1) b
        CROSS JOIN LATERAL jsonb_each(b.open_state) AS t (topic_id, partitions)
        CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, value)) AS largest_open_bytes
