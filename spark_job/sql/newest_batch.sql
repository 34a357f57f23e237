SELECT coalesce(max(batch_id), 0) FROM outbox.batch
