-- The next rows of the replay's own session keys.
SELECT o.batch_id, o.session_key,
       EXISTS (SELECT FROM outbox.parked p WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id) AS parked
FROM outbox.replay_key k
JOIN outbox.session_output o ON o.session_key = k.session_key
WHERE k.replay_id = %(replay_id)s
  AND o.batch_id >= %(from_batch)s
  AND o.batch_id <= %(to_batch)s
  AND (o.batch_id, o.session_key) > (%(from_batch)s, %(from_key)s)
ORDER BY o.batch_id, o.session_key
LIMIT %(rows)s
