UPDATE outbox.parked p
SET state = 'discarded', state_changed_at = now()
WHERE p.state = 'parked'
  AND p.batch_id <= %(to_batch)s
  AND (%(reasons)s::text[] IS NULL OR p.reason = ANY (%(reasons)s))
  AND (%(batch_ids)s::bigint[] IS NULL
       OR (p.batch_id, p.session_key) IN (SELECT * FROM unnest(%(batch_ids)s::bigint[], %(session_keys)s::text[])))
