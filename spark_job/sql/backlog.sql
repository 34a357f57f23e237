-- Whole batches behind the slowest lane. A lane that no publisher has run yet stands before its epoch's first batch.
SELECT coalesce(sum(b.output_events), 0)::bigint AS events, coalesce(sum(b.output_bytes), 0)::bigint AS bytes
FROM outbox.batch b
WHERE b.batch_id > (SELECT min(p.through_batch) FROM outbox.lane_position p WHERE NOT p.ended)
