-- The first batch whose rows retention has left; NULL before there are any partitions.
SELECT min((regexp_match(pg_get_expr(c.relpartbound, c.oid), '^FOR VALUES FROM \(''(\d+)''\)'))[1]::bigint)
FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'outbox.session_output'::regclass AND NOT i.inhdetachpending
