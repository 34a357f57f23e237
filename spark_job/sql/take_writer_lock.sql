SELECT pg_advisory_xact_lock(hashtextextended('outbox.writer', 0))
