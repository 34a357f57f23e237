INSERT INTO outbox.savepoint (name, generation, batch_id, end_offsets, open_state, lineage, assembly, topics, revision, created_at)
SELECT 'before-deploy', g.from_generation, g.from_batch, b.end_offsets, b.open_state, '[]', g.assembly, g.topics, g.revision, g.created_at
FROM outbox.generation g
JOIN outbox.batch b ON b.batch_id = g.from_batch
WHERE g.reason = 'savepoint'
