-- Every lane of every epoch, also those that no publisher has run yet; `through`: the last batch of which nothing is left. A resume that did not
-- end (stopped_why) may have set the lane back in Kafka already, wherever the mirror is.
SELECT p.epoch, p.lane, p.from_batch, p.to_batch, CASE WHEN p.stopped_why = 'resuming' THEN p.from_batch - 1 ELSE p.through_batch END,
       p.lease_holder, p.stopped_reason
FROM outbox.lane_position p
ORDER BY p.epoch, p.lane
