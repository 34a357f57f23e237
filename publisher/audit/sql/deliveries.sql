-- The audit's queries on the lanes' mirrors and deliveries.

-- name: cursors
SELECT l.epoch, l.lane, l.cursor_batch, l.cursor_key FROM outbox.lane l ORDER BY l.epoch, l.lane

-- name: resumes
-- For each resume, where the lane was before it and after it. If the former is not recorded, both are equal, so that the resume excuses no
-- repetition.
SELECT d.epoch, d.lane, d.seq, coalesce(d.after_batch, d.to_batch), CASE WHEN d.after_batch IS NULL THEN d.to_key ELSE d.after_key END,
       d.to_batch, d.to_key, coalesce(d.note, '')
FROM outbox.delivery d
WHERE d.kind = 'resume'
ORDER BY d.epoch, d.lane, d.seq

-- name: mirror
SELECT m.epoch, m.lane, m.detail FROM outbox.check_mirror m ORDER BY m.epoch, m.lane

-- name: chain
SELECT d.epoch, d.lane, d.missing, d.detail
FROM outbox.check_delivery_chain d
WHERE d.to_batch >= %(from_batch)s AND coalesce(d.after_batch, 0) <= %(to_batch)s
ORDER BY d.epoch, d.lane, d.seq

-- name: counts
-- Deliveries that end in a range of batches and whose counts differ from the rows of their cursor range, without parked rows.
SELECT d.epoch, d.lane, d.seq, d.sessions, d.events, d.row_sessions, d.row_events, d.after_batch, d.after_key, d.to_batch, d.to_key
FROM outbox.check_delivery_counts(%(from_batch)s, %(to_batch)s) d
WHERE (d.sessions, d.events) IS DISTINCT FROM (d.row_sessions, d.row_events)
ORDER BY d.epoch, d.lane, d.seq

-- name: of_lane
SELECT d.seq, d.after_batch, d.after_key, d.to_batch, d.to_key, d.kafka_offsets::text
FROM outbox.delivery d
WHERE d.epoch = %(epoch)s AND d.lane = %(lane)s AND d.seq >= %(from_seq)s AND d.to_batch >= %(from_batch)s
  AND d.kind = 'delivery' AND d.events > 0
ORDER BY d.seq
LIMIT %(deliveries)s

-- name: first_offsets
-- Where the deliveries from one batch on begin in each topic partition. Malformed offsets count as 0, or have no partition.
SELECT t.topic, CASE WHEN p.partition ~ '^[0-9]{1,9}$' THEN p.partition END,
       min(CASE WHEN jsonb_typeof(p.bounds) = 'array' AND p.bounds ->> 0 ~ '^[0-9]{1,18}$' THEN (p.bounds ->> 0)::bigint ELSE 0 END)
FROM outbox.delivery d
CROSS JOIN LATERAL jsonb_each(d.kafka_offsets) AS t (topic, partitions)
LEFT JOIN LATERAL jsonb_each(CASE jsonb_typeof(t.partitions) WHEN 'object' THEN t.partitions END) AS p (partition, bounds) ON true
WHERE d.to_batch >= %(from_batch)s
GROUP BY 1, 2

-- name: unknown_offsets
-- Deliveries from one batch on without offsets, and lanes whose deliveries from that batch on are pruned.
SELECT (SELECT count(*) FROM outbox.delivery d WHERE d.to_batch >= %(from_batch)s AND d.events > 0 AND d.kafka_offsets IS NULL)
     + (SELECT count(*)
        FROM outbox.lane_position p
        JOIN outbox.lane l ON l.epoch = p.epoch AND l.lane = p.lane AND l.pruned_seq > 0
        LEFT JOIN LATERAL (
            SELECT d.after_batch FROM outbox.delivery d
            WHERE d.epoch = l.epoch AND d.lane = l.lane AND d.seq > l.pruned_seq
            ORDER BY d.seq LIMIT 1
        ) f ON true
        WHERE (p.to_batch >= %(from_batch)s OR p.to_batch IS NULL) AND (f.after_batch < %(from_batch)s) IS NOT TRUE)
