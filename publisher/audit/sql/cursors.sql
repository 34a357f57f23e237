SELECT l.epoch, l.lane, l.cursor_batch, l.cursor_key FROM outbox.lane l ORDER BY l.epoch, l.lane
