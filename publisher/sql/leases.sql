-- Leases: which process runs which lane. For liveness only; Kafka fences.

-- name: claim
-- Also claims a lane that this holder already has: each tenure has its own token. A process' leases live as long as its heartbeat's
-- backend.
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
    -- If the backend belongs to another role, its start is hidden and only the pid is compared.
    OR NOT EXISTS (
        SELECT FROM pg_stat_activity a
        WHERE a.pid = l.lease_backend_pid AND (a.backend_start = l.lease_backend_start) IS NOT FALSE
    )
  )
RETURNING l.lease_token

-- name: force
-- Takes a lane even if it is held. The caller then fences the holder in Kafka, and the holder's token is no longer valid here.
UPDATE outbox.lane
SET lease_token = lease_token + 1,
    lease_holder = %(holder)s,
    lease_until = now() + make_interval(secs => %(lease_s)s),
    lease_backend_pid = pg_backend_pid(),
    lease_backend_start = (SELECT a.backend_start FROM pg_stat_activity a WHERE a.pid = pg_backend_pid())
WHERE epoch = %(epoch)s AND lane = %(lane)s
RETURNING lease_token

-- name: renew
UPDATE outbox.lane
SET lease_until = now() + make_interval(secs => %(lease_s)s)
WHERE epoch = %(epoch)s AND lane = %(lane)s AND lease_token = %(lease_token)s AND lease_holder IS NOT NULL

-- name: release
-- Notifies the other processes, so that one with too few lanes claims the lane at once.
WITH released AS (
    UPDATE outbox.lane
    SET lease_holder = NULL, lease_until = NULL, lease_backend_pid = NULL, lease_backend_start = NULL
    WHERE epoch = %(epoch)s AND lane = %(lane)s AND lease_token = %(lease_token)s
    RETURNING lane
)
SELECT outbox.wake('outbox_publisher', '') FROM released

-- name: holders
-- The lanes of an epoch that have work or a holder, and their holders. A lane that has delivered everything keeps its holder until the
-- epoch ends, so that the last lanes do not move between processes. The caller's own lease also counts while its heartbeat reconnects.
SELECT s.lane, s.holder, s.ended
FROM (
    SELECT p.lane, CASE WHEN p.held OR (p.lease_holder = %(me)s AND p.lease_until >= now()) THEN p.lease_holder END AS holder, p.ended
    FROM outbox.lane_position p
    WHERE p.epoch = %(epoch)s
) s
WHERE s.holder IS NOT NULL OR NOT s.ended
ORDER BY s.lane

-- name: others_delivered
-- How many seconds ago another process that holds a lane of this epoch last delivered; NULL if none has.
SELECT extract(epoch FROM now() - max(l.mirrored_at))::double precision
FROM outbox.lane l
WHERE l.epoch = %(epoch)s AND l.lease_holder <> %(me)s AND l.lease_until >= now()

-- name: claim_lanes
-- Claims the free lanes among these, except lanes that another process is claiming at this moment.
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

-- name: release_lanes
UPDATE outbox.lane
SET lease_holder = NULL, lease_until = NULL, lease_backend_pid = NULL, lease_backend_start = NULL
WHERE epoch = %(epoch)s AND lane = ANY (%(lanes)s) AND lease_holder = %(holder)s

-- name: release_other_epochs
-- Lanes of an ended epoch have kept their holders until the last lane delivered everything.
UPDATE outbox.lane
SET lease_holder = NULL, lease_until = NULL, lease_backend_pid = NULL, lease_backend_start = NULL
WHERE lease_holder = %(holder)s AND epoch <> %(epoch)s
