-- Batch ids are dense: each gap, as the first and the last id that are missing.
SELECT g.former + 1, g.batch_id - 1
FROM (
    SELECT b.batch_id, lag(b.batch_id, 1, %(from_batch)s - 1) OVER (ORDER BY b.batch_id) AS former
    FROM outbox.batch b
    WHERE b.batch_id >= %(from_batch)s AND b.batch_id <= %(to_batch)s
) g
WHERE g.batch_id <> g.former + 1
ORDER BY g.batch_id
