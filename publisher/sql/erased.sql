-- The records of erased rows.

-- name: of_key
SELECT x.erased_at, x.batch_id, x.revision, s.topic_id, s.partition, s.end_offset, s.outputs
FROM outbox.erased x
CROSS JOIN LATERAL unnest(x.topic_ids, x.partitions, x.ends, x.outputs) AS s (topic_id, partition, end_offset, outputs)
WHERE x.key_hash = outbox.key_hash(%(session_key)s) AND x.lane IS NOT NULL
ORDER BY x.batch_id, s.end_offset

-- name: at_end
SELECT x.erased_at, x.batch_id, x.revision, s.topic_id, s.partition, s.end_offset, s.outputs
FROM outbox.erased x
CROSS JOIN LATERAL unnest(x.topic_ids, x.partitions, x.ends, x.outputs) AS s (topic_id, partition, end_offset, outputs)
WHERE x.lane IS NOT NULL AND s.topic_id = %(topic_id)s AND s.partition = %(partition)s AND s.end_offset = %(end_offset)s
ORDER BY x.batch_id

-- name: ends
SELECT s.topic_id || '/' || s.partition, s.end_offset, x.revision
FROM outbox.erased x
CROSS JOIN LATERAL unnest(x.topic_ids, x.partitions, x.ends) AS s (topic_id, partition, end_offset)
WHERE x.lane IS NOT NULL

-- name: topics
SELECT DISTINCT t.name FROM outbox.erased x CROSS JOIN LATERAL unnest(x.topics) AS t (name)

-- name: newest
SELECT coalesce(max(x.erased_id), 0) FROM outbox.erased x

-- name: counts
-- Counts of the batches from the first one to the second: rows, sessions, outputs, letters.
SELECT count(*) FILTER (WHERE x.lane IS NOT NULL), coalesce(sum(cardinality(x.ends)) FILTER (WHERE x.lane IS NOT NULL), 0)::bigint,
       coalesce(sum(outbox.total(x.outputs)), 0)::bigint, count(x.dead_letter_id)
FROM outbox.erased x
WHERE x.batch_id >= %(from_batch)s AND x.batch_id <= %(to_batch)s
