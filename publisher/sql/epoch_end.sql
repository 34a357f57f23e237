-- The last batch of an epoch; NULL while it is the newest.
SELECT min(e.from_batch) - 1 FROM outbox.lane_epoch e WHERE e.epoch > %(epoch)s
