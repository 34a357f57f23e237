-- Lanes, parked rows and replays that may still need the rows of a partition.

-- name: newest_batch
SELECT coalesce(max(b.batch_id), 0), min(b.created_at) FILTER (WHERE b.batch_id >= %(first_batch)s), max(b.created_at),
       count(*) FILTER (WHERE b.batch_id >= %(first_batch)s)
FROM outbox.batch b

-- name: lanes
-- Every lane of every epoch, also a lane that no publisher has run yet. `through`: the last batch that the lane has delivered completely. A
-- resume that has not ended (stopped_why) may already have set the lane back in Kafka, so no batch counts as delivered.
SELECT p.epoch, p.lane, p.from_batch, p.to_batch, CASE WHEN p.stopped_why = 'resuming' THEN p.from_batch - 1 ELSE p.through_batch END,
       p.lease_holder, p.stopped_reason, p.stopped_why
FROM outbox.lane_position p
ORDER BY p.epoch, p.lane

-- name: parked
SELECT p.batch_id, count(*) FROM outbox.parked p WHERE p.state = 'parked' GROUP BY p.batch_id ORDER BY p.batch_id

-- name: replays
-- The batches that a replay still has to read, or that its process may still send, whatever its state, while it has the lease.
SELECT r.replay_id, r.state, greatest(r.from_batch, r.cursor_batch), r.to_batch
FROM outbox.replay r
WHERE r.state IN ('running', 'paused') OR r.lease_until >= now()
ORDER BY r.replay_id

-- name: open_at_upgrade
SELECT o.topic_id, o.partition, o.safe_offset, o.batches, o.first, o.last FROM outbox.open_at_upgrade(%(first_batch)s, %(last_batch)s) o
