SELECT e.epoch, e.from_batch, e.lanes FROM outbox.lane_epoch e ORDER BY e.epoch
