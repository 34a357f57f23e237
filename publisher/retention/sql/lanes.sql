-- Every lane of every epoch, also those that no publisher has run yet; `through`: the last batch of which nothing is left. A resume that did not
-- end (stopped_why) may have set the lane back in Kafka already, wherever the mirror is.
WITH epoch AS (
    SELECT e.epoch, e.from_batch, e.lanes, lead(e.from_batch) OVER (ORDER BY e.epoch) - 1 AS to_batch
    FROM outbox.lane_epoch e
)
SELECT e.epoch, n.lane, e.from_batch, e.to_batch,
       CASE WHEN l.stopped_why = 'resuming' THEN e.from_batch - 1
            ELSE greatest(e.from_batch - 1, coalesce(l.cursor_batch - (l.cursor_key IS NOT NULL)::integer, 0)) END,
       l.lease_holder, l.stopped_reason
FROM epoch e
CROSS JOIN LATERAL generate_series(0, e.lanes - 1) AS n (lane)
LEFT JOIN outbox.lane l ON l.epoch = e.epoch AND l.lane = n.lane
ORDER BY e.epoch, n.lane
