-- The oldest chosen row of each session key, key by key: two rows of one key cannot be in one batch, and keep their order.
SELECT DISTINCT ON (p.session_key) p.batch_id, p.session_key, pg_column_size(o."values")
FROM outbox.parked p
JOIN outbox.session_output o ON o.batch_id = p.batch_id AND o.session_key = p.session_key
WHERE p.state = 'parked'
  AND p.session_key > %(after_key)s
  AND p.batch_id <= %(to_batch)s
  AND (%(reasons)s::text[] IS NULL OR p.reason = ANY (%(reasons)s))
  AND (%(batch_ids)s::bigint[] IS NULL
       OR (p.batch_id, p.session_key) IN (SELECT * FROM unnest(%(batch_ids)s::bigint[], %(session_keys)s::text[])))
ORDER BY p.session_key, p.batch_id
LIMIT %(rows)s
