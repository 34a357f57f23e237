SELECT
    w.run_id, w.host, w.pid, w.backend_pid, w.started_at, w.heartbeat_at, w.held_back_since, w.held_back_because,
    extract(epoch FROM clock_timestamp() - w.heartbeat_at)::float8 AS heartbeat_age_s,
    EXISTS (
        SELECT FROM pg_stat_activity a
        WHERE a.pid = w.backend_pid AND a.datname = current_database()
            AND (a.backend_start = w.backend_start) IS NOT FALSE  -- hidden from some roles: then the pid must do
    ) AS backend_lives
FROM outbox.writer w
