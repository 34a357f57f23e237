-- Missing output topics whose rows a person has decided to park.

-- name: standing
SELECT t.topic, t.decided_at FROM outbox.parked_topic t WHERE t.ended_at IS NULL ORDER BY t.topic

-- name: span
-- The range of batches that the lanes have not passed.
SELECT min(greatest(l.cursor_batch, l.from_batch)), max(l.last_batch) FROM outbox.lane_position l WHERE NOT l.ended

-- name: waiting
-- Counts the rows after the lanes' cursors in a range of batches, as `backlog` in lanes.sql does, without the rows that are parked already.
SELECT count(*), count(DISTINCT o.session_key), coalesce(sum(cardinality(o.topics)), 0)::bigint
FROM outbox.lane_position l
JOIN outbox.session_output o
  ON o.lane = l.lane AND o.batch_id >= greatest(l.cursor_batch, l.from_batch) AND o.batch_id <= l.last_batch
 AND (o.batch_id > l.cursor_batch OR o.session_key > l.cursor_key)
WHERE NOT l.ended
  AND o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s
  AND %(topic)s::text = ANY (o.topics)
  AND NOT EXISTS (SELECT FROM outbox.parked p WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id)

-- name: decide
INSERT INTO outbox.parked_topic AS t (topic)
VALUES (%(topic)s)
ON CONFLICT ON CONSTRAINT parked_topic_pkey DO UPDATE SET decided_at = now(), ended_at = NULL
WHERE t.ended_at IS NOT NULL

-- name: take_back
UPDATE outbox.parked_topic SET ended_at = now() WHERE topic = %(topic)s AND ended_at IS NULL
