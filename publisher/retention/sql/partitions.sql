-- One that is being detached is listed by leftovers.sql.
SELECT p.name::text, p.from_batch, p.to_batch + 1, coalesce(pg_total_relation_size(p.relation), 0),
       n.created_at, (extract(epoch FROM now() - n.created_at))::double precision,
       obj_description(p.relation, 'pg_class') IS NOT DISTINCT FROM %(mark)s
FROM outbox.output_partition p
-- The newest batch of the range; created_at grows with batch_id.
LEFT JOIN LATERAL (
    SELECT b.created_at FROM outbox.batch b
    WHERE b.batch_id >= p.from_batch AND b.batch_id <= p.to_batch
    ORDER BY b.batch_id DESC LIMIT 1) n ON true
WHERE NOT p.detaching
ORDER BY p.from_batch
