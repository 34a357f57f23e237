-- The oldest epoch with a lane that has not come to its end.
SELECT e.epoch, e.from_batch, e.lanes
FROM outbox.epoch_range e
WHERE EXISTS (SELECT FROM outbox.lane_position p WHERE p.epoch = e.epoch AND NOT p.ended)
ORDER BY e.epoch
LIMIT 1
