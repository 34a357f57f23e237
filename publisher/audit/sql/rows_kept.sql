-- Partitions with undelivered rows that are not there.
SELECT k.partition, k.from_batch, k.to_batch, k.sessions
FROM outbox.check_rows_kept k
ORDER BY k.from_batch
