-- Every lane epoch with its last batch, NULL for the newest.
SELECT e.epoch, e.from_batch, e.lanes, lead(e.from_batch) OVER (ORDER BY e.epoch) - 1
FROM outbox.lane_epoch e
ORDER BY e.epoch
