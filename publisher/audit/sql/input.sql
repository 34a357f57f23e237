-- Input topics ever read; revision and lower bounds of what the first audited stream batch and those after it may emit: what closes below
-- any of them was emitted before. The ends of earlier generations of the revision are among them, because before 0005 a generation read
-- again what they had dealt with.
SELECT (SELECT coalesce(array_agg(DISTINCT k.id), '{}') FROM outbox.generation g CROSS JOIN LATERAL jsonb_object_keys(g.topics) AS k (id)),
       f.revision, coalesce(f.bounds, '{}')
FROM (VALUES (1)) one
LEFT JOIN LATERAL (
    SELECT g.revision, array_prepend(b.start_offsets, ARRAY(
        SELECT coalesce(n.end_offsets, e.start_offsets)
        FROM outbox.generation e
        LEFT JOIN LATERAL (
            SELECT x.end_offsets FROM outbox.batch x
            WHERE x.generation = e.generation AND x.kind = 'stream'
            ORDER BY x.batch_id DESC LIMIT 1
        ) n ON true
        WHERE e.generation < g.generation AND e.revision = g.revision)) AS bounds
    FROM outbox.batch b
    JOIN outbox.generation g ON g.generation = b.generation
    WHERE b.kind = 'stream' AND b.batch_id >= %(from_batch)s
    ORDER BY b.batch_id
    LIMIT 1
) f ON true
