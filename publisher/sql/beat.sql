-- The process lives, and so do all its leases. A lane whose row is locked is being written, by its worker as a rule, which renews it too.
WITH backend AS (
    SELECT a.pid, a.backend_start FROM pg_stat_activity a WHERE a.pid = pg_backend_pid()
), process AS (
    INSERT INTO outbox.publisher_process AS p (process_id, host, pid, heartbeat_at, alive_until, backend_pid, backend_start)
    SELECT %(holder)s::text::uuid, %(host)s, %(pid)s, now(), now() + make_interval(secs => %(lease_s)s), b.pid, b.backend_start
    FROM backend b
    ON CONFLICT ON CONSTRAINT publisher_process_pkey DO UPDATE
    SET heartbeat_at = excluded.heartbeat_at, alive_until = excluded.alive_until, backend_pid = excluded.backend_pid, backend_start = excluded.backend_start,
        ended_at = NULL
)
UPDATE outbox.lane AS l
SET lease_until = now() + make_interval(secs => %(lease_s)s),
    lease_backend_pid = b.pid,
    lease_backend_start = b.backend_start
FROM backend b
WHERE (l.epoch, l.lane) IN (
    SELECT h.epoch, h.lane FROM outbox.lane h WHERE h.lease_holder = %(holder)s FOR NO KEY UPDATE SKIP LOCKED
)
