-- Anew too where it is held by this holder already: each tenure has its own token. A process' leases live with its heartbeat's backend.
UPDATE outbox.lane AS l
SET lease_token = l.lease_token + 1,
    taken = l.taken + CASE WHEN l.lease_holder IS DISTINCT FROM %(holder)s::text THEN 1 ELSE 0 END,
    lease_holder = %(holder)s,
    lease_until = now() + make_interval(secs => %(lease_s)s),
    lease_backend_pid = own.pid,
    lease_backend_start = own.backend_start
FROM (
    SELECT coalesce(p.backend_pid, a.pid) AS pid, CASE WHEN p.backend_pid IS NULL THEN a.backend_start ELSE p.backend_start END AS backend_start
    FROM pg_stat_activity a
    LEFT JOIN outbox.publisher_process p ON p.process_id::text = %(holder)s AND p.ended_at IS NULL
    WHERE a.pid = pg_backend_pid()
) own
WHERE l.epoch = %(epoch)s
  AND l.lane = %(lane)s
  AND (
    l.lease_until IS NULL
    OR l.lease_until < now()
    OR l.lease_holder = %(holder)s
    -- The start of another role's backend is hidden; then its pid must do.
    OR NOT EXISTS (
        SELECT FROM pg_stat_activity a
        WHERE a.pid = l.lease_backend_pid AND (a.backend_start = l.lease_backend_start) IS NOT FALSE
    )
  )
RETURNING l.lease_token
