-- The job's ledger as the publisher reads it.

-- name: window
-- The ledger's row at the cursor and the rows after it.
SELECT b.batch_id, b.commit_id, extract(epoch FROM b.created_at)::double precision AS committed_s
FROM outbox.batch b
WHERE b.batch_id >= %(from_batch)s
ORDER BY b.batch_id
LIMIT %(batches)s

-- name: commit_id
SELECT b.commit_id FROM outbox.batch b WHERE b.batch_id = %(batch_id)s

-- name: end
SELECT coalesce(max(b.batch_id), 0) FROM outbox.batch b

-- name: newest_lane_count
SELECT e.lanes FROM outbox.lane_epoch e ORDER BY e.epoch DESC LIMIT 1
