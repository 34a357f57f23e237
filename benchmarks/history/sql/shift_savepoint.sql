UPDATE outbox.savepoint SET created_at = created_at + %(by)s
