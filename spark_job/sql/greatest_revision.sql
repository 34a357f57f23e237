SELECT coalesce(max(revision), 0) FROM outbox.generation
