UPDATE outbox.lane l
SET seq = d.seq, cursor_batch = d.to_batch, cursor_key = d.to_key
FROM (SELECT DISTINCT ON (epoch, lane) epoch, lane, seq, to_batch, to_key FROM outbox.delivery ORDER BY epoch, lane, seq DESC) d
WHERE d.epoch = l.epoch AND d.lane = l.lane
