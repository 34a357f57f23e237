-- The publisher's processes and their heartbeats.

-- name: beat
-- Shows that the process lives and renews its leases, but ends the leases of lanes that hang. With `takes_lanes` false the process no
-- longer counts among the living, so that the others share the lanes without it; it keeps its own lanes. While no other process lives, no
-- lease is ended and the process counts as living, because nobody else could take a lane. A lane whose row is locked is skipped: usually
-- its own worker is renewing it.
WITH backend AS (
    SELECT a.pid, a.backend_start,
           EXISTS (
               SELECT FROM outbox.publisher_process o
               WHERE o.process_id <> %(holder)s::text::uuid AND o.ended_at IS NULL AND o.alive_until >= now()
           ) AS others_live
    FROM pg_stat_activity a WHERE a.pid = pg_backend_pid()
), process AS (
    INSERT INTO outbox.publisher_process AS p (process_id, host, pid, heartbeat_at, alive_until, backend_pid, backend_start)
    SELECT %(holder)s::text::uuid, %(host)s, %(pid)s, now(),
           CASE WHEN %(takes_lanes)s OR NOT b.others_live THEN now() + make_interval(secs => %(lease_s)s) ELSE now() END,
           b.pid, b.backend_start
    FROM backend b
    ON CONFLICT ON CONSTRAINT publisher_process_pkey DO UPDATE
    SET heartbeat_at = excluded.heartbeat_at, alive_until = excluded.alive_until, backend_pid = excluded.backend_pid, backend_start = excluded.backend_start,
        ended_at = NULL
)
UPDATE outbox.lane AS l
SET lease_until = CASE
        WHEN b.others_live AND (l.epoch, l.lane) IN (SELECT h.epoch, h.lane FROM unnest(%(late_epochs)s::integer[], %(late_lanes)s::integer[]) h (epoch, lane))
        THEN now()
        ELSE now() + make_interval(secs => %(lease_s)s)
    END,
    lease_backend_pid = b.pid,
    lease_backend_start = b.backend_start
FROM backend b
WHERE (l.epoch, l.lane) IN (
    SELECT h.epoch, h.lane FROM outbox.lane h WHERE h.lease_holder = %(holder)s FOR NO KEY UPDATE SKIP LOCKED
)

-- name: living
-- A process whose backend is gone was killed, and is left out at once. A process that does not renew hangs, or its machine is gone. After a
-- restart of the server, no process has a backend until it reconnects.
SELECT p.process_id::text, p.host, p.pid, p.started_at, p.alive_until
FROM outbox.publisher_process p
WHERE p.ended_at IS NULL
  AND p.alive_until >= now()
  AND (
    p.backend_start < pg_postmaster_start_time()
    OR EXISTS (
        SELECT FROM pg_stat_activity a
        -- If the backend belongs to another role, its start is hidden and only the pid is compared.
        WHERE a.pid = p.backend_pid AND (a.backend_start = p.backend_start) IS NOT FALSE
    )
  )
ORDER BY p.started_at, p.process_id

-- name: end
-- The process ends in order, so that others take its lanes over at once.
WITH released AS (
    UPDATE outbox.lane AS l
    SET lease_holder = NULL, lease_until = NULL, lease_backend_pid = NULL, lease_backend_start = NULL
    WHERE (l.epoch, l.lane) IN (
        SELECT h.epoch, h.lane FROM outbox.lane h WHERE h.lease_holder = %(holder)s FOR NO KEY UPDATE SKIP LOCKED
    )
), ended AS (
    UPDATE outbox.publisher_process SET alive_until = now(), ended_at = now() WHERE process_id = %(holder)s::text::uuid
)
SELECT outbox.wake('outbox_publisher', '')
