SELECT outbox.ensure_partitions(m.batch_id + 1, m.batch_id + %(ahead_batches)s)
FROM (SELECT coalesce(max(b.batch_id), 0) AS batch_id FROM outbox.batch b) m
