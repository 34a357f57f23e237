INSERT INTO outbox.savepoint (name, generation, batch_id)
SELECT %(name)s, g.generation, (
    SELECT b.batch_id
    FROM outbox.batch b
    WHERE b.generation = g.generation AND b.kind = 'stream' AND b.spark_batch IS NOT NULL
    ORDER BY b.spark_batch DESC, b.part
    LIMIT 1)
FROM outbox.generation g
ORDER BY g.generation DESC
LIMIT 1
ON CONFLICT (name) WHERE deleted_at IS NULL DO NOTHING
RETURNING savepoint_id
