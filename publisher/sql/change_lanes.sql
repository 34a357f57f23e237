SELECT c.epoch, c.from_batch FROM outbox.change_lanes(%(lanes)s) c
