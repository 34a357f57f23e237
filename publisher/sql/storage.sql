-- The size of the outbox, for the metrics.

-- name: storage
-- The age of the newest batch in the oldest partition, as retention computes it.
SELECT count(*) FILTER (WHERE NOT p.detaching) AS kept, count(*) FILTER (WHERE p.detaching) AS detaching,
       pg_database_size(current_database()) AS bytes,
       coalesce(extract(epoch FROM now() - (
           SELECT b.created_at FROM outbox.batch b
           WHERE b.batch_id <= min(p.to_batch) FILTER (WHERE NOT p.detaching)
           ORDER BY b.batch_id DESC LIMIT 1)), 0)::double precision AS oldest_s,
       (SELECT count(r.failed) FROM outbox.retention r) AS failed
FROM outbox.output_partition p
