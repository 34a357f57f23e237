-- `done` only grows within a generation, so that its newest row says it all.
SELECT high_water FROM outbox.generation
UNION ALL
SELECT b.done_offsets
FROM outbox.generation g
CROSS JOIN LATERAL (
    SELECT done_offsets
    FROM outbox.batch
    WHERE generation = g.generation AND kind = 'stream'
    ORDER BY spark_batch DESC
    LIMIT 1) b
