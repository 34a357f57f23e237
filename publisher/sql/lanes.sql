-- The lanes' mirrors in Postgres: the position of each lane, and why it has stopped.
-- A lane with a stopped_why is stopped. A lane with only a stopped_reason is retrying, for that reason.

-- name: add
INSERT INTO outbox.lane (epoch, lane)
SELECT %(epoch)s, n FROM generate_series(0, %(lanes)s - 1) AS n
ON CONFLICT ON CONSTRAINT lane_pkey DO NOTHING

-- name: state
-- The last two columns: whether an earlier epoch has not ended (a resume may have set one of its lanes back); whether a resume of this lane
-- has begun and is not recorded.
-- Returns no row without our own lease: the row of a later holder says nothing about the progress record that we read.
SELECT l.seq, l.cursor_batch, l.cursor_key,
       coalesce((SELECT max(d.seq) FROM outbox.delivery d WHERE d.epoch = l.epoch AND d.lane = l.lane), 0),
       (SELECT max(e.epoch) FROM outbox.lane_epoch e),
       coalesce((SELECT min(p.epoch) FROM outbox.lane_position p WHERE NOT p.ended) < l.epoch, false),
       l.stopped_why IS NOT DISTINCT FROM 'resuming'
FROM outbox.lane l
WHERE l.epoch = %(epoch)s AND l.lane = %(lane)s AND l.lease_token = %(lease_token)s

-- name: any_progress
SELECT EXISTS (SELECT FROM outbox.lane l WHERE l.seq > 0) OR EXISTS (SELECT FROM outbox.delivery)

-- name: set_stopped
-- Without a `reason` the lane is not stopped: it retries by itself. An interrupted resume keeps its mark until the lane `runs`, because
-- retention reads the mark.
UPDATE outbox.lane AS l SET stopped_reason = found.explanation, stopped_why = found.reason
FROM (
    SELECT o.epoch, o.lane,
           CASE WHEN r.resuming THEN 'resuming: ' || %(explanation)s::text ELSE %(explanation)s::text END AS explanation,
           CASE WHEN r.resuming THEN o.stopped_why ELSE %(reason)s::text END AS reason
    FROM outbox.lane o
    CROSS JOIN LATERAL (SELECT o.stopped_why = 'resuming' AND NOT %(runs)s AS resuming) r
    WHERE o.epoch = %(epoch)s AND o.lane = %(lane)s
) found
WHERE l.epoch = found.epoch AND l.lane = found.lane AND l.lease_token = %(lease_token)s
  AND (l.stopped_reason, l.stopped_why) IS DISTINCT FROM (found.explanation, found.reason)

-- name: statuses
-- Every lane of every epoch that is not over, also a lane that no publisher has run yet. `waiting`: a process holds a lane of an earlier
-- epoch.
WITH lane AS (
    SELECT p.epoch, p.lane, p.from_batch, p.seq, p.cursor_batch, p.cursor_key, p.last_batch, p.sessions, p.events, p.lease_holder, p.held,
           p.stopped_reason, p.stopped_why
    FROM outbox.lane_position p
)
SELECT
    l.epoch, l.lane,
    CASE WHEN l.held
        THEN coalesce((SELECT p.host || ':' || p.pid FROM outbox.publisher_process p WHERE p.process_id::text = l.lease_holder), l.lease_holder)
    END AS holder,
    l.seq, l.cursor_batch, l.cursor_key, l.sessions, l.events, l.stopped_reason, l.stopped_why,
    (SELECT max(d.committed_at) FROM outbox.delivery d WHERE d.epoch = l.epoch AND d.lane = l.lane AND d.seq = l.seq) AS last_delivery_at,
    greatest(0, l.last_batch - greatest(l.cursor_batch, l.from_batch - 1)) AS lag_batches,
    l.from_batch,
    l.last_batch,
    EXISTS (SELECT FROM lane h WHERE h.epoch < l.epoch AND h.held) AS waiting
FROM lane l
WHERE l.stopped_reason IS NOT NULL
   OR l.epoch >= (SELECT max(k.epoch) FROM outbox.lane_epoch k)
   OR l.cursor_batch < l.last_batch OR l.cursor_key IS NOT NULL
ORDER BY l.epoch, l.lane

-- name: backlog
-- How many undelivered rows each lane has in a range of batches, up to a limit for each, and how old the batch of the first one is; in the
-- order of the lanes. The range bounds all lanes with constants, which prune partitions; each lane has its own bounds in addition.
SELECT n.rows, extract(epoch FROM now() - b.created_at)::double precision AS age_s
FROM unnest(%(lanes)s::integer[], %(after_batches)s::bigint[], %(after_keys)s::text[], %(last_batches)s::bigint[], %(limits)s::bigint[])
    WITH ORDINALITY AS l (lane, after_batch, after_key, last_batch, count_limit, number)
CROSS JOIN LATERAL (
    SELECT count(*) AS rows FROM (
        SELECT FROM outbox.session_output o
        WHERE o.lane = l.lane AND o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s
          AND o.batch_id <= l.last_batch AND (o.batch_id, o.session_key) > (l.after_batch, l.after_key)
        LIMIT l.count_limit) undelivered
) n
LEFT JOIN LATERAL (
    SELECT o.batch_id FROM outbox.session_output o
    WHERE o.lane = l.lane AND o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s
      AND o.batch_id <= l.last_batch AND (o.batch_id, o.session_key) > (l.after_batch, l.after_key)
    ORDER BY o.batch_id, o.session_key
    LIMIT 1
) f ON n.rows > 0
LEFT JOIN outbox.batch b ON b.batch_id = f.batch_id
ORDER BY l.number

-- name: times_taken
SELECT coalesce(sum(l.taken), 0)::bigint FROM outbox.lane l
