-- The ledger's row at the cursor and those after it.
SELECT b.batch_id, b.commit_id
FROM outbox.batch b
WHERE b.batch_id >= %(from_batch)s
ORDER BY b.batch_id
LIMIT %(batches)s
