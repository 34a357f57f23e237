-- `cuts`: from these offsets on, Kafka has given them out a second time since.
SELECT s.name, s.generation, s.batch_id, s.end_offsets, s.open_state, s.lineage, s.assembly, s.topics, s.revision, s.created_at,
    (
        SELECT coalesce(jsonb_agg(g.cut_offsets), '[]') FROM outbox.generation g
        WHERE g.generation > s.generation AND g.cut_offsets IS NOT NULL
    ) AS cuts
FROM outbox.savepoint s
WHERE s.deleted_at IS NULL
ORDER BY s.savepoint_id
