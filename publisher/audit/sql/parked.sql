-- Rows that are put aside, and what is wrong with any that were.
SELECT p.batch_id, p.session_key, p.state = 'parked', p.requeued_batch, c.detail
FROM outbox.parked p
LEFT JOIN outbox.check_parked c ON c.session_key = p.session_key AND c.batch_id = p.batch_id
WHERE p.batch_id >= %(from_batch)s AND p.batch_id <= %(to_batch)s AND (p.state = 'parked' OR c.detail IS NOT NULL)
ORDER BY p.batch_id, p.session_key
