SELECT max(batch_id) FROM outbox.batch
