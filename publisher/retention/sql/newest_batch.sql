SELECT coalesce(max(b.batch_id), 0), min(b.created_at) FILTER (WHERE b.batch_id >= %(first_batch)s), max(b.created_at),
       count(*) FILTER (WHERE b.batch_id >= %(first_batch)s)
FROM outbox.batch b
