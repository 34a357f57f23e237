SELECT part, content_hash
FROM outbox.batch
WHERE generation = %(generation)s AND spark_batch = %(spark_batch)s AND kind = 'stream'
ORDER BY part
