SELECT e.epoch, e.from_batch, last.to_batch, e.lanes, e.created_at,
       (SELECT count(*) FROM outbox.lane l
        WHERE l.epoch = e.epoch AND l.lane < e.lanes AND l.cursor_batch = last.to_batch AND l.cursor_key IS NULL)::integer
FROM outbox.lane_epoch e
CROSS JOIN LATERAL (SELECT min(n.from_batch) - 1 AS to_batch FROM outbox.lane_epoch n WHERE n.epoch > e.epoch) last
ORDER BY e.epoch
