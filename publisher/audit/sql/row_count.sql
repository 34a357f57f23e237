SELECT count(*)
FROM outbox.batch_rows(%(from_batch)s, %(to_batch)s) o
LEFT JOIN outbox.parked p ON p.session_key = o.session_key AND p.batch_id = o.batch_id
WHERE p.batch_id IS NULL
