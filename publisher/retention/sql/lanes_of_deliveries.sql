SELECT l.epoch, l.lane FROM outbox.lane l ORDER BY l.epoch, l.lane
