-- Parked rows: put aside because Kafka refuses them, or because they cannot be read.

-- name: park
-- The row lock makes a takeover wait for this insert, and makes this insert see a finished takeover.
INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, after_seq, reason, detail)
SELECT %(session_key)s, %(batch_id)s, l.epoch, l.lane, l.lease_token, l.seq, %(reason)s, %(detail)s
FROM outbox.lane l
WHERE l.epoch = %(epoch)s AND l.lane = %(lane)s AND l.lease_token = %(lease_token)s AND l.lease_holder IS NOT NULL
FOR SHARE OF l

-- name: ahead
SELECT p.batch_id, p.session_key
FROM outbox.parked p
WHERE p.epoch = %(epoch)s AND p.lane = %(lane)s AND (p.batch_id, p.session_key) > (%(from_batch)s, %(from_key)s)
ORDER BY p.batch_id, p.session_key
LIMIT %(rows)s

-- name: within
SELECT count(*)
FROM outbox.parked p
WHERE p.epoch = %(epoch)s AND p.lane = %(lane)s
  AND (p.batch_id, p.session_key) > (%(from_batch)s, %(from_key)s)
  AND (p.batch_id, p.session_key) <= (%(to_batch)s, %(to_key)s)

-- name: up_to
-- Parked rows that retention has deleted were before every cursor, so they are added.
SELECT count(*) + coalesce((SELECT l.pruned_parked FROM outbox.lane l WHERE l.epoch = %(epoch)s AND l.lane = %(lane)s), 0)
FROM outbox.parked p
WHERE p.epoch = %(epoch)s AND p.lane = %(lane)s AND (p.batch_id, p.session_key) <= (%(to_batch)s, %(to_key)s)

-- name: list
SELECT p.batch_id, p.session_key, p.epoch, p.lane, p.reason, p.detail, p.state, p.requeued_batch, p.created_at
FROM outbox.parked p
WHERE %(all_states)s OR p.state = 'parked'
ORDER BY p.batch_id, p.session_key
LIMIT %(rows)s

-- name: row
SELECT p.batch_id, p.session_key, p.epoch, p.lane, p.reason, p.detail, p.state, p.requeued_batch, p.created_at, p.state_changed_at
FROM outbox.parked p
WHERE p.batch_id = %(batch_id)s AND p.session_key = %(session_key)s

-- name: events
SELECT e.outbox_id, e.topic, e.key, e.target_partition, e.event_timestamp, e.headers, e.value
FROM outbox.event e
WHERE e.batch_id = %(batch_id)s AND e.session_key = %(session_key)s
ORDER BY e.input_topic_id, e.input_partition, e.session_end_offset, split_part(e.outbox_id, '/', 4)::integer

-- name: counts
-- Counted up to a limit. A state without rows is left out.
SELECT s.state, n.rows
FROM unnest(ARRAY['discarded', 'parked', 'requeued']) AS s (state)
CROSS JOIN LATERAL (
    SELECT count(*) AS rows FROM (SELECT FROM outbox.parked p WHERE p.state = s.state LIMIT %(count_limit)s) counted
) n
WHERE n.rows > 0
ORDER BY s.state

-- name: bounded_counts
-- Returns 0 for a reason without rows, so that an increase shows the first parked row.
SELECT r.reason,
       (SELECT count(*) FROM (SELECT FROM outbox.parked p WHERE p.state = 'parked' AND p.reason = r.reason LIMIT %(count_limit)s) counted)
FROM unnest(ARRAY['too_large', 'invalid', 'topic_missing']) AS r (reason)

-- name: chosen
SELECT count(*), count(DISTINCT p.session_key)
FROM outbox.parked p
WHERE p.state = 'parked'
  AND p.batch_id <= %(to_batch)s
  AND (%(reasons)s::text[] IS NULL OR p.reason = ANY (%(reasons)s))
  AND (%(batch_ids)s::bigint[] IS NULL
       OR (p.batch_id, p.session_key) IN (SELECT * FROM unnest(%(batch_ids)s::bigint[], %(session_keys)s::text[])))

-- name: span
-- The batches of the chosen rows.
SELECT min(p.batch_id), max(p.batch_id)
FROM outbox.parked p
WHERE p.state = 'parked'
  AND p.batch_id <= %(to_batch)s
  AND (%(reasons)s::text[] IS NULL OR p.reason = ANY (%(reasons)s))
  AND (%(batch_ids)s::bigint[] IS NULL
       OR (p.batch_id, p.session_key) IN (SELECT * FROM unnest(%(batch_ids)s::bigint[], %(session_keys)s::text[])))

-- name: missing
-- Chosen rows in a range of batches that the outbox no longer has, so that they cannot be sent again.
SELECT p.batch_id, p.session_key
FROM outbox.parked p
WHERE p.state = 'parked'
  AND p.batch_id >= %(from_batch)s AND p.batch_id <= %(to_batch)s
  AND (%(reasons)s::text[] IS NULL OR p.reason = ANY (%(reasons)s))
  AND (%(batch_ids)s::bigint[] IS NULL
       OR (p.batch_id, p.session_key) IN (SELECT * FROM unnest(%(batch_ids)s::bigint[], %(session_keys)s::text[])))
  AND NOT EXISTS (SELECT FROM outbox.session_output o
                  WHERE o.batch_id = p.batch_id AND o.session_key = p.session_key
                    AND o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s)
ORDER BY p.batch_id, p.session_key
LIMIT 1000

-- name: next
-- The oldest chosen row of each session key in a range of batches, ordered by key. One batch cannot hold two rows of a key, and they keep
-- their order.
SELECT DISTINCT ON (p.session_key) p.batch_id, p.session_key, pg_column_size(o."values")
FROM outbox.parked p
JOIN outbox.session_output o ON o.batch_id = p.batch_id AND o.session_key = p.session_key
                             AND o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s
WHERE p.state = 'parked'
  AND p.session_key > %(after_key)s
  AND p.batch_id >= %(from_batch)s AND p.batch_id <= %(to_batch)s
  AND (%(reasons)s::text[] IS NULL OR p.reason = ANY (%(reasons)s))
  AND (%(batch_ids)s::bigint[] IS NULL
       OR (p.batch_id, p.session_key) IN (SELECT * FROM unnest(%(batch_ids)s::bigint[], %(session_keys)s::text[])))
ORDER BY p.session_key, p.batch_id
LIMIT %(rows)s

-- name: requeue
SELECT outbox.requeue(%(session_keys)s, %(batch_ids)s, %(lanes)s, %(lane_count)s, %(run_id)s)

-- name: discard
SELECT outbox.discard_parked(%(to_batch)s, %(reasons)s, %(batch_ids)s, %(session_keys)s)
