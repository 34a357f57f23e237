-- Lane epochs: the lane count from each batch on.

-- name: current
-- The oldest epoch with a lane that has not delivered all its rows.
SELECT e.epoch, e.from_batch, e.lanes
FROM outbox.epoch_range e
WHERE EXISTS (SELECT FROM outbox.lane_position p WHERE p.epoch = e.epoch AND NOT p.ended)
ORDER BY e.epoch
LIMIT 1

-- name: end
-- The last batch of an epoch; NULL while it is the newest.
SELECT min(e.from_batch) - 1 FROM outbox.lane_epoch e WHERE e.epoch > %(epoch)s

-- name: all
SELECT e.epoch, e.from_batch, e.to_batch, e.lanes, e.created_at,
       (SELECT count(*) FROM outbox.lane_position p WHERE p.epoch = e.epoch AND p.ended)::integer
FROM outbox.epoch_range e
ORDER BY e.epoch

-- name: ranges
-- Every lane epoch with its last batch, NULL for the newest.
SELECT e.epoch, e.from_batch, e.lanes, e.to_batch
FROM outbox.epoch_range e
ORDER BY e.epoch

-- name: change_lanes
SELECT c.epoch, c.from_batch FROM outbox.change_lanes(%(lanes)s) c
