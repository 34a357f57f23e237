SELECT
    coalesce((SELECT max(batch_id) FROM outbox.batch), 0) + 1 AS batch_id,
    (SELECT lanes FROM outbox.lane_epoch ORDER BY epoch DESC LIMIT 1) AS lanes
