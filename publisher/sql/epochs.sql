SELECT e.epoch, e.from_batch, e.to_batch, e.lanes, e.created_at,
       (SELECT count(*) FROM outbox.lane_position p WHERE p.epoch = e.epoch AND p.ended)::integer
FROM outbox.epoch_range e
ORDER BY e.epoch
