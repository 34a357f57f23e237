-- Resumes: a person chooses the cursor at which a lane continues.

-- name: lock
-- Held until the connection ends.
SELECT pg_advisory_lock(hashtextextended('outbox.resume', 0))

-- name: lane
SELECT l.seq, l.cursor_batch, l.cursor_key, l.cursor_commit_id, l.sessions, l.events, l.stopped_why IS NOT NULL,
       coalesce((SELECT max(d.seq) FROM outbox.delivery d WHERE d.epoch = l.epoch AND d.lane = l.lane), 0)
FROM outbox.lane l
WHERE l.epoch = %(epoch)s AND l.lane = %(lane)s

-- name: began_anew
-- Whether this transaction of the lane is a resume that set the lane to the beginning.
SELECT EXISTS (SELECT FROM outbox.delivery d
               WHERE d.epoch = %(epoch)s AND d.lane = %(lane)s AND d.seq = %(seq)s AND d.kind = 'resume' AND d.to_batch = 0)

-- name: count_rows
-- Sessions and events of a lane's rows between two cursors, without parked rows, which are skipped again.
SELECT coalesce(sum(cardinality(o.session_ends)), 0)::bigint, coalesce(sum(cardinality(o.topics)), 0)::bigint
FROM outbox.session_output o
WHERE o.lane = %(lane)s
  AND o.batch_id >= %(first_batch)s
  AND o.batch_id <= %(last_batch)s
  AND (o.batch_id, o.session_key) > (%(from_batch)s, %(from_key)s)
  AND (o.batch_id, o.session_key) <= (%(to_batch)s, %(to_key)s)
  AND NOT EXISTS (SELECT FROM outbox.parked p WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id)

-- name: mark_lane
-- Set before Kafka's commit: from here on the mirror may be ahead of the lane's true position. `record_resume` in deliveries.sql or the
-- next successful step clears the mark.
UPDATE outbox.lane SET stopped_reason = %(reason)s, stopped_why = 'resuming'
WHERE epoch = %(epoch)s AND lane = %(lane)s AND lease_token = %(lease_token)s AND lease_holder IS NOT NULL
