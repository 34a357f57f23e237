UPDATE outbox.writer
SET run_id = NULL, host = NULL, pid = NULL, backend_pid = NULL, backend_start = NULL, heartbeat_at = NULL, started_at = NULL,
    held_back_since = NULL, held_back_because = NULL
WHERE run_id = %(run_id)s
