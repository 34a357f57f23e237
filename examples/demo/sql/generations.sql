SELECT count(*) FROM outbox.generation
