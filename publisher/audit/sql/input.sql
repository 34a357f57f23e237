-- Input topics ever read; revision and lower bound of what the first audited stream batch may emit: what closes below was emitted before.
SELECT (SELECT coalesce(array_agg(DISTINCT k.id), '{}') FROM outbox.generation g CROSS JOIN LATERAL jsonb_object_keys(g.topics) AS k (id)),
       f.revision, f.start_offsets, f.high_water
FROM (VALUES (1)) one
LEFT JOIN LATERAL (
    SELECT g.revision, b.start_offsets, g.high_water
    FROM outbox.batch b
    JOIN outbox.generation g ON g.generation = b.generation
    WHERE b.kind = 'stream' AND b.batch_id >= %(from_batch)s
    ORDER BY b.batch_id
    LIMIT 1
) f ON true
