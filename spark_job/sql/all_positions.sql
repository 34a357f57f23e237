-- Each generation's own position, and that of its newest stream row.
SELECT g.generation, g.start_offsets, g.open_state AS start_open, coalesce(g.cut_offsets, '{}') AS cut_offsets, g.lineage, g.assembly, g.topics,
    coalesce(b.end_offsets, '{}') AS end_offsets, coalesce(b.open_state, '{}') AS end_open
FROM outbox.generation g
LEFT JOIN LATERAL (
    SELECT n.end_offsets, n.open_state
    FROM outbox.batch n
    WHERE n.generation = g.generation AND n.kind = 'stream'
    ORDER BY n.batch_id DESC
    LIMIT 1) b ON true
ORDER BY g.generation
