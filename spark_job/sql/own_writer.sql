UPDATE outbox.writer
SET run_id = %(run_id)s, host = %(host)s, pid = %(pid)s, backend_pid = pg_backend_pid(),
    backend_start = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()),
    heartbeat_at = clock_timestamp(), started_at = clock_timestamp(),
    held_back_since = NULL, held_back_because = NULL
