UPDATE outbox.batch
SET recomputed_at = clock_timestamp(), recomputed_hash = %(recomputed_hash)s
WHERE generation = %(generation)s AND spark_batch = %(spark_batch)s AND part = 0
