INSERT INTO outbox.savepoint (name, generation, batch_id, created_at)
SELECT 'before-deploy', g.from_generation, g.from_batch, g.created_at
FROM outbox.generation g
WHERE g.reason = 'savepoint'
