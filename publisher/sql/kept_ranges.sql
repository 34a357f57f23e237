-- The batches whose rows retention has left, as ranges with both ends, oldest first; neighbouring partitions are one range.
SELECT lower(k.kept), upper(k.kept) - 1
FROM (
    SELECT unnest(range_agg(int8range(r.bounds[1]::bigint, r.bounds[2]::bigint))) AS kept
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    CROSS JOIN LATERAL regexp_match(pg_get_expr(c.relpartbound, c.oid), '^FOR VALUES FROM \(''(\d+)''\) TO \(''(\d+)''\)$') AS r (bounds)
    WHERE i.inhparent = 'outbox.session_output'::regclass AND NOT i.inhdetachpending AND r.bounds IS NOT NULL
) k
ORDER BY 1
