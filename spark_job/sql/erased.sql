-- Session keys that were erased.

-- name: reaching
-- The last erased offset of each key and partition, if a session that closes after the position may contain erased events. Offsets from a cut on
-- belong to other events now. `safe`: {topic id: {partition: offset}}; no session that closes from now on begins below these offsets.
SELECT x.key_hash, e.topic_id, e.partition, max(least(e.end_offset, c.cut - 1))
FROM outbox.erased x
CROSS JOIN LATERAL unnest(x.topic_ids, x.partitions, x.ends) AS e (topic_id, partition, end_offset)
CROSS JOIN LATERAL (
    SELECT min((g.cut_offsets #>> ARRAY[e.topic_id, e.partition::text])::bigint) AS cut
    FROM outbox.generation g
    WHERE g.generation > x.generation AND g.cut_offsets IS NOT NULL
) c
WHERE x.key_hash IS NOT NULL
GROUP BY x.key_hash, e.topic_id, e.partition
HAVING max(least(e.end_offset, c.cut - 1)) >= coalesce((%(safe)s::jsonb #>> ARRAY[e.topic_id, e.partition::text])::bigint, 0)
