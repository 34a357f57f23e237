-- The first batch whose rows retention has left; NULL before there are any partitions.
SELECT min(substring(c.relname FROM '\d+$')::bigint) * 10000
FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'outbox.session_output'::regclass
