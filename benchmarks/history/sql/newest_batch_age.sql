SELECT now() - max(created_at) FROM outbox.batch
