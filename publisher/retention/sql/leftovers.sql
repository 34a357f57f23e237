-- What an interrupted run left: a partition whose detaching is not over, or a table that was one. Ours by name, by columns and by the mark; the
-- mark tells them from what somebody detached to keep it.
SELECT c.relname::text, i.inhdetachpending IS NOT NULL, obj_description(c.oid, 'pg_class') IS NOT DISTINCT FROM %(mark)s,
       pg_total_relation_size(c.oid)
FROM pg_class c
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^session_output_p\d{8}$'
  AND (i.inhdetachpending OR i.inhrelid IS NULL)
  AND (SELECT array_agg((a.attname, a.atttypid)::text ORDER BY a.attnum) FROM pg_attribute a
       WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
    = (SELECT array_agg((a.attname, a.atttypid)::text ORDER BY a.attnum) FROM pg_attribute a
       WHERE a.attrelid = 'outbox.session_output'::regclass AND a.attnum > 0 AND NOT a.attisdropped)
ORDER BY i.inhdetachpending IS NOT NULL DESC, c.relname
