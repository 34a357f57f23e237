-- Lane epochs before the newest whose rows are gone, whose every lane came to the end, and which ended long ago: the oldest ones, so that what is
-- left has no hole. With their lanes and what is left of their deliveries.
WITH ended AS MATERIALIZED (
    SELECT e.epoch
    FROM outbox.epoch_range e
    WHERE e.to_batch < %(floor)s
      AND (SELECT min(n.created_at) FROM outbox.lane_epoch n WHERE n.epoch > e.epoch) < now() - make_interval(secs => %(keep_s)s)
      AND e.epoch < ALL (SELECT p.epoch FROM outbox.lane_position p WHERE NOT p.ended OR p.stopped_why IS NOT NULL OR p.held)
), deliveries AS (
    DELETE FROM outbox.delivery d USING ended e WHERE d.epoch = e.epoch
), lanes AS (
    DELETE FROM outbox.lane l USING ended e WHERE l.epoch = e.epoch RETURNING l.epoch
)
SELECT coalesce(array_agg(e.epoch ORDER BY e.epoch), '{}') FROM ended e
