-- The oldest epoch with a lane that has not come to its end.
SELECT e.epoch, e.from_batch, e.lanes
FROM outbox.lane_epoch e
CROSS JOIN LATERAL (SELECT min(n.from_batch) - 1 AS to_batch FROM outbox.lane_epoch n WHERE n.epoch > e.epoch) last
WHERE last.to_batch IS NULL
   OR (SELECT count(*) FROM outbox.lane l
       WHERE l.epoch = e.epoch AND l.lane < e.lanes AND l.cursor_batch = last.to_batch AND l.cursor_key IS NULL) < e.lanes
ORDER BY e.epoch
LIMIT 1
