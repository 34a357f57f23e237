UPDATE outbox.replay AS r
SET state = 'running',
    state_changed_at = CASE r.state WHEN 'running' THEN r.state_changed_at ELSE now() END,
    reason = NULL,
    lease_token = r.lease_token + 1,
    lease_holder = %(holder)s,
    lease_until = now() + make_interval(secs => %(lease_s)s),
    lease_backend_pid = pg_backend_pid(),
    lease_backend_start = (SELECT a.backend_start FROM pg_stat_activity a WHERE a.pid = pg_backend_pid())
WHERE r.replay_id = %(replay_id)s
  AND (r.state = 'running' OR r.state = 'paused' AND %(paused_too)s)
  AND (
    r.lease_until IS NULL
    OR r.lease_until < now()
    OR r.lease_backend_pid = pg_backend_pid()
    -- The start of another role's backend is hidden; then its pid must do.
    OR NOT EXISTS (
        SELECT FROM pg_stat_activity a
        WHERE a.pid = r.lease_backend_pid AND (a.backend_start = r.lease_backend_start) IS NOT FALSE
    )
  )
RETURNING r.lease_token, r.seq, r.cursor_batch, r.cursor_key
