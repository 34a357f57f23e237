-- Table partitions of session_output.

-- name: kept
-- First and last batch of each partition with any batch of the range, oldest first.
SELECT p.from_batch, p.to_batch
FROM outbox.output_partition p
WHERE NOT p.detaching AND p.to_batch >= %(from_batch)s AND (%(to_batch)s::bigint IS NULL OR p.from_batch <= %(to_batch)s::bigint)
ORDER BY p.from_batch
