SELECT b.batch_id, b.kind, b.created_at FROM outbox.batch b ORDER BY b.batch_id DESC LIMIT 1
