-- Savepoints: named positions.

-- name: insert
INSERT INTO outbox.savepoint (name, generation, batch_id, end_offsets, open_state, lineage, assembly, topics, revision)
VALUES (%(name)s, %(generation)s, %(batch_id)s, %(end_offsets)s, %(open_state)s, %(lineage)s, %(assembly)s, %(topics)s, %(revision)s)
ON CONFLICT (name) WHERE deleted_at IS NULL DO NOTHING

-- name: list
-- `cuts`: the offsets from which on Kafka has since given out offsets a second time.
SELECT s.name, s.generation, s.batch_id, s.end_offsets, s.open_state, s.lineage, s.assembly, s.topics, s.revision, s.created_at,
    (
        SELECT coalesce(jsonb_agg(g.cut_offsets), '[]') FROM outbox.generation g
        WHERE g.generation > s.generation AND g.cut_offsets IS NOT NULL
    ) AS cuts
FROM outbox.savepoint s
WHERE s.deleted_at IS NULL
ORDER BY s.savepoint_id

-- name: delete
UPDATE outbox.savepoint SET deleted_at = clock_timestamp() WHERE name = %(name)s AND deleted_at IS NULL
