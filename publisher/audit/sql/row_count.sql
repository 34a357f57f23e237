SELECT count(*)
FROM outbox.session_output o
LEFT JOIN outbox.parked p ON p.session_key = o.session_key AND p.batch_id = o.batch_id
WHERE o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s AND p.batch_id IS NULL
