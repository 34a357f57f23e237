DELETE FROM outbox.delivery WHERE to_batch > %(to_batch)s
