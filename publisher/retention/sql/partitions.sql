-- The partitions of session_output.

-- name: ensure
SELECT outbox.ensure_partitions(m.batch_id + 1, m.batch_id + %(ahead_batches)s)
FROM (SELECT coalesce(max(b.batch_id), 0) AS batch_id FROM outbox.batch b) m

-- name: list
-- Attached partitions. `detached` of db/sql/partitions.sql lists a partition that is being detached.
SELECT p.name::text, p.from_batch, p.to_batch + 1, coalesce(pg_total_relation_size(p.relation), 0),
       n.created_at, (extract(epoch FROM now() - n.created_at))::double precision
FROM outbox.output_partition p
-- The newest batch of the range; created_at grows with batch_id.
LEFT JOIN LATERAL (
    SELECT b.created_at FROM outbox.batch b
    WHERE b.batch_id >= p.from_batch AND b.batch_id <= p.to_batch
    ORDER BY b.batch_id DESC LIMIT 1) n ON true
WHERE NOT p.detaching
ORDER BY p.from_batch

-- name: drop
SELECT outbox.drop_partition(%(partition)s)

-- name: in_the_way
-- Transactions that hold a lock on the outputs, oldest first. Their statements are not shown because they may hold data. The age is NULL if
-- this login may not see it.
SELECT DISTINCT a.pid, coalesce(nullif(a.application_name, ''), 'unnamed'), coalesce(a.usename::text, '?'),
       extract(epoch FROM clock_timestamp() - a.xact_start)::double precision AS age_s
FROM pg_locks l
JOIN pg_stat_activity a USING (pid)
JOIN pg_class c ON c.oid = l.relation
WHERE l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) AND l.granted AND l.pid <> pg_backend_pid()
  AND (c.oid = 'outbox.session_output'::regclass OR c.relname = %(partition)s)
ORDER BY age_s DESC NULLS LAST
LIMIT 5
