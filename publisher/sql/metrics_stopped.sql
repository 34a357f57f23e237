SELECT l.epoch, l.lane, coalesce(l.stopped_why, split_part(l.stopped_reason, ':', 1))
FROM outbox.lane l
-- `retrying: …` is said of a lane that waits for a server, and goes on by itself.
WHERE l.stopped_reason IS NOT NULL AND (l.stopped_why IS NOT NULL OR l.stopped_reason NOT LIKE 'retrying:%')
