-- The ledger, to cut it into ranges of a bearable size.
SELECT b.batch_id, b.sessions FROM outbox.batch b
WHERE b.batch_id >= %(from_batch)s AND b.batch_id <= %(to_batch)s
ORDER BY b.batch_id
LIMIT %(batches)s
