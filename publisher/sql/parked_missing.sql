-- Chosen rows that the outbox no longer holds, so that there is nothing to send again.
SELECT p.batch_id, p.session_key
FROM outbox.parked p
WHERE p.state = 'parked'
  AND p.batch_id <= %(to_batch)s
  AND (%(reasons)s::text[] IS NULL OR p.reason = ANY (%(reasons)s))
  AND (%(batch_ids)s::bigint[] IS NULL
       OR (p.batch_id, p.session_key) IN (SELECT * FROM unnest(%(batch_ids)s::bigint[], %(session_keys)s::text[])))
  AND NOT EXISTS (SELECT FROM outbox.session_output o WHERE o.batch_id = p.batch_id AND o.session_key = p.session_key)
ORDER BY p.batch_id, p.session_key
LIMIT 1000
