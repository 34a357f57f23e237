UPDATE outbox.lane AS l
SET lease_token = l.lease_token + 1,
    lease_holder = %(holder)s,
    lease_until = now() + make_interval(secs => %(lease_s)s),
    lease_backend_pid = pg_backend_pid(),
    lease_backend_start = (SELECT a.backend_start FROM pg_stat_activity a WHERE a.pid = pg_backend_pid())
WHERE l.epoch = %(epoch)s
  AND l.lane = %(lane)s
  AND (
    l.lease_until IS NULL
    OR l.lease_until < now()
    OR l.lease_backend_pid = pg_backend_pid()
    -- The start of another role's backend is hidden; then its pid must do.
    OR NOT EXISTS (
        SELECT FROM pg_stat_activity a
        WHERE a.pid = l.lease_backend_pid AND (a.backend_start = l.lease_backend_start) IS NOT FALSE
    )
  )
RETURNING l.lease_token
