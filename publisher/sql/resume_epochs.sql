-- Every lane epoch with its last batch, NULL for the newest.
SELECT e.epoch, e.from_batch, e.lanes, e.to_batch
FROM outbox.epoch_range e
ORDER BY e.epoch
