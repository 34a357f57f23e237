SELECT coalesce(max(b.batch_id), 0) FROM outbox.batch b
