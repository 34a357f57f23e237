-- Session keys that were erased.

-- name: reaching
-- Whether an erased event of any key lies at or above a safe offset: then a session that closes after the position may contain some. The index
-- leads from one partition to the next, so the cost does not depend on the number of keys. A partition without a safe offset is read from its
-- beginning.
WITH RECURSIVE place AS (
    (SELECT topic_id, partition FROM outbox.erased_key ORDER BY topic_id, partition LIMIT 1)
    UNION ALL
    SELECT n.topic_id, n.partition
    FROM place p
    CROSS JOIN LATERAL (
        SELECT k.topic_id, k.partition
        FROM outbox.erased_key k
        WHERE (k.topic_id, k.partition) > (p.topic_id, p.partition)
        ORDER BY k.topic_id, k.partition
        LIMIT 1
    ) n
)
SELECT EXISTS (
    SELECT
    FROM place p
    CROSS JOIN LATERAL (
        SELECT k.through FROM outbox.erased_key k
        WHERE k.topic_id = p.topic_id AND k.partition = p.partition
        ORDER BY k.through DESC
        LIMIT 1
    ) k
    LEFT JOIN unnest(%(topic_ids)s::text[], %(partitions)s::integer[], %(safe)s::bigint[]) AS s (topic_id, partition, safe) USING (topic_id, partition)
    WHERE k.through >= coalesce(s.safe, 0))

-- name: of_keys
-- The last erased offset of each of these keys in each partition. Offsets from a cut on belong to other events now.
SELECT k.key_hash, k.topic_id, k.partition, max(least(k.through, c.cut - 1))
FROM outbox.erased_key k
CROSS JOIN LATERAL (
    SELECT min((g.cut_offsets #>> ARRAY[k.topic_id, k.partition::text])::bigint) AS cut
    FROM outbox.generation g
    WHERE g.generation > k.generation AND g.cut_offsets IS NOT NULL
) c
WHERE k.key_hash = ANY (%(key_hashes)s::bytea[])
GROUP BY k.key_hash, k.topic_id, k.partition
