SELECT m.epoch, m.lane, m.detail FROM outbox.check_mirror m ORDER BY m.epoch, m.lane
