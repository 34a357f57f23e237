DELETE FROM outbox.lane_epoch d WHERE d.epoch = ANY (%(epochs)s)
