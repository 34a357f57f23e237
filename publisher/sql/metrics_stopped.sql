SELECT l.epoch, l.lane, coalesce(l.stopped_why, split_part(l.stopped_reason, ':', 1))
FROM outbox.lane l
WHERE l.stopped_reason IS NOT NULL
