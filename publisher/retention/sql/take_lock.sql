SELECT pg_try_advisory_lock(hashtextextended('outbox.retention', 0))
