SELECT s.name, s.generation, s.batch_id, s.created_at, g.topics, g.revision,
    coalesce(b.safe_offsets, g.start_offsets) AS safe_offsets,
    coalesce(b.done_offsets, g.high_water) AS done_offsets
FROM outbox.savepoint s
JOIN outbox.generation g USING (generation)
LEFT JOIN outbox.batch b ON b.batch_id = s.batch_id
WHERE s.deleted_at IS NULL
ORDER BY s.savepoint_id
