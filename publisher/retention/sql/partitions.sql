-- Only those that hold ranges of batches, which ensure_partitions made; one that is being detached is listed by leftovers.sql.
SELECT c.relname::text, r.bounds[1]::bigint, r.bounds[2]::bigint, coalesce(pg_total_relation_size(c.oid), 0),
       n.created_at, (extract(epoch FROM now() - n.created_at))::double precision,
       obj_description(c.oid, 'pg_class') IS NOT DISTINCT FROM %(mark)s
FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid
CROSS JOIN LATERAL regexp_match(pg_get_expr(c.relpartbound, c.oid), '^FOR VALUES FROM \(''(\d+)''\) TO \(''(\d+)''\)$') AS r (bounds)
-- The newest batch of the range; created_at grows with batch_id.
LEFT JOIN LATERAL (
    SELECT b.created_at FROM outbox.batch b
    WHERE b.batch_id >= r.bounds[1]::bigint AND b.batch_id < r.bounds[2]::bigint
    ORDER BY b.batch_id DESC LIMIT 1) n ON true
WHERE i.inhparent = 'outbox.session_output'::regclass AND NOT i.inhdetachpending AND r.bounds IS NOT NULL
ORDER BY r.bounds[1]::bigint
