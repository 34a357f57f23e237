-- Session keys that were erased.

-- name: reaching
-- Whether an erased event of any key lies at or above a safe offset: then a session that closes after the position may contain some. The index
-- leads from one partition to the next, so the cost does not depend on the number of keys. A partition without a safe offset is read from its
-- beginning, and a topic that is not among `inputs` not at all.
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
    WHERE k.through >= coalesce(s.safe, 0) AND p.topic_id = ANY (%(inputs)s::text[]))

-- name: of_places
-- For each of these keys and partitions (by its place, from 0 on) with erased events: the offset of the last one. OFFSET 0: one look-up in the
-- index for each place, however many keys were erased.
SELECT k.place - 1, max(e.through)
FROM unnest(%(key_hashes)s::bytea[], %(topic_ids)s::text[], %(partitions)s::integer[]) WITH ORDINALITY AS k (key_hash, topic_id, partition, place)
CROSS JOIN LATERAL (
    SELECT x.through FROM outbox.erased_offset x
    WHERE x.key_hash = k.key_hash AND x.topic_id = k.topic_id AND x.partition = k.partition
    OFFSET 0
) e
GROUP BY k.place
