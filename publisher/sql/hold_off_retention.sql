-- Until the connection ends. Retention holds the same lock alone from its decision to the drop.
SELECT pg_advisory_lock_shared(hashtextextended('outbox.retention', 0))
