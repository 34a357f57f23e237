-- Whole batches behind the slowest lane. A lane that no publisher has run yet stands before its epoch's first batch.
WITH epoch AS (
    SELECT epoch, from_batch, lanes, lead(from_batch) OVER (ORDER BY epoch) - 1 AS to_batch
    FROM outbox.lane_epoch
), through AS (
    SELECT e.to_batch, greatest(e.from_batch - 1, coalesce(l.cursor_batch - (l.cursor_key IS NOT NULL)::integer, 0)) AS batch_id
    FROM epoch e
    CROSS JOIN LATERAL generate_series(0, e.lanes - 1) AS n (lane)
    LEFT JOIN outbox.lane l ON l.epoch = e.epoch AND l.lane = n.lane
)
SELECT coalesce(sum(b.output_events), 0)::bigint AS events, coalesce(sum(b.output_bytes), 0)::bigint AS bytes
FROM outbox.batch b
WHERE b.batch_id > (SELECT min(t.batch_id) FROM through t WHERE t.batch_id < t.to_batch OR t.to_batch IS NULL)
