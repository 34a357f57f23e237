-- Table partitions of session_output.

-- name: kept
-- First and last batch of each partition with any batch of the range, oldest first.
SELECT p.from_batch, p.to_batch
FROM outbox.output_partition p
WHERE NOT p.detaching AND p.to_batch >= %(from_batch)s AND (%(to_batch)s::bigint IS NULL OR p.from_batch <= %(to_batch)s::bigint)
ORDER BY p.from_batch

-- name: detached
-- Partitions that somebody has detached or is detaching: tables with a partition's name and columns.
SELECT c.relname::text, i.inhdetachpending IS NOT NULL, pg_total_relation_size(c.oid)
FROM pg_class c
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^session_output_p\d{8}$'
  AND (i.inhdetachpending OR i.inhrelid IS NULL)
  AND (SELECT array_agg((a.attname, a.atttypid)::text ORDER BY a.attnum) FROM pg_attribute a
       WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
    = (SELECT array_agg((a.attname, a.atttypid)::text ORDER BY a.attnum) FROM pg_attribute a
       WHERE a.attrelid = 'outbox.session_output'::regclass AND a.attnum > 0 AND NOT a.attisdropped)
ORDER BY i.inhdetachpending IS NOT NULL DESC, c.relname
