SELECT batch_id, spark_batch, start_offsets, end_offsets, done_offsets, safe_offsets, created_at
FROM outbox.batch
WHERE generation = %(generation)s AND kind = 'stream' AND spark_batch IS NOT NULL  -- or the index begins with every retry and requeue
ORDER BY spark_batch DESC, part
LIMIT 1
