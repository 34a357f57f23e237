-- Until the connection ends.
SELECT pg_advisory_lock(hashtextextended('outbox.resume', 0))
