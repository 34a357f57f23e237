-- Generation by generation: where its opening found offsets given out anew, and what it has dealt with. `done` only grows within a generation,
-- so that its newest row says it all.
SELECT coalesce(g.cut_offsets, '{}') AS cut_offsets, g.high_water, coalesce(b.done_offsets, '{}') AS done_offsets
FROM outbox.generation g
LEFT JOIN LATERAL (
    SELECT done_offsets
    FROM outbox.batch
    WHERE generation = g.generation AND kind = 'stream' AND spark_batch IS NOT NULL
    ORDER BY spark_batch DESC
    LIMIT 1) b ON true
ORDER BY g.generation
