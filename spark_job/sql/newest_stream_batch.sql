SELECT batch_id, spark_batch, start_offsets, end_offsets, done_offsets, safe_offsets, created_at
FROM outbox.batch
WHERE generation = %(generation)s AND kind = 'stream'
ORDER BY spark_batch DESC, part
LIMIT 1
