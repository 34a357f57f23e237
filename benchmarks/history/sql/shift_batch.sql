UPDATE outbox.batch SET created_at = created_at + %(by)s
