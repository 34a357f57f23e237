-- Takes what nobody holds of these lanes. What somebody else is just taking is left to them.
UPDATE outbox.lane AS l
SET lease_token = l.lease_token + 1,
    taken = l.taken + 1,
    lease_holder = %(holder)s,
    lease_until = now() + make_interval(secs => %(lease_s)s),
    lease_backend_pid = p.backend_pid,
    lease_backend_start = p.backend_start
FROM outbox.publisher_process p
WHERE p.process_id = %(holder)s::text::uuid
  AND l.epoch = %(epoch)s
  AND l.lane IN (
    SELECT c.lane
    FROM outbox.lane c
    WHERE c.epoch = %(epoch)s
      AND c.lane = ANY (%(lanes)s)
      AND (
        c.lease_until IS NULL
        OR c.lease_until < now()
        OR NOT EXISTS (
            SELECT FROM pg_stat_activity a
            WHERE a.pid = c.lease_backend_pid AND (a.backend_start = c.lease_backend_start) IS NOT FALSE
        )
      )
    FOR NO KEY UPDATE SKIP LOCKED
  )
RETURNING l.lane
