-- The row outbox.writer: who may write, and its lock.

-- name: lock
SELECT outbox.lock_writer()

-- name: read
SELECT
    w.run_id, w.host, w.pid, w.backend_pid, w.started_at, w.held_back_since, w.held_back_because,
    extract(epoch FROM clock_timestamp() - w.heartbeat_at)::float8 AS heartbeat_age_s,
    EXISTS (
        SELECT FROM pg_stat_activity a
        WHERE a.pid = w.backend_pid AND a.datname = current_database()
            AND (a.backend_start = w.backend_start) IS NOT FALSE  -- NULL for roles that may not see it: the pid decides alone
    ) AS backend_lives
FROM outbox.writer w

-- name: own
UPDATE outbox.writer
SET run_id = %(run_id)s, host = %(host)s, pid = %(pid)s, backend_pid = pg_backend_pid(),
    backend_start = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()),
    heartbeat_at = clock_timestamp(), started_at = clock_timestamp(),
    held_back_since = NULL, held_back_because = NULL

-- name: heartbeat
UPDATE outbox.writer SET heartbeat_at = clock_timestamp() WHERE run_id = %(run_id)s

-- name: hold_back
UPDATE outbox.writer
SET held_back_since = CASE WHEN %(because)s::text IS NOT NULL THEN clock_timestamp() END, held_back_because = %(because)s
WHERE run_id = %(run_id)s

-- name: release
UPDATE outbox.writer
SET run_id = NULL, host = NULL, pid = NULL, backend_pid = NULL, backend_start = NULL, heartbeat_at = NULL, started_at = NULL,
    held_back_since = NULL, held_back_because = NULL
WHERE run_id = %(run_id)s

-- name: terminate_backend
SELECT pg_terminate_backend(%(pid)s::integer, 5000) WHERE %(pid)s::integer <> pg_backend_pid()
