UPDATE outbox.generation SET created_at = created_at + %(by)s
