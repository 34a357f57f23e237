-- What the outbox has for some sessions of the input, for `spark-job try` and `spark-job diff`.

-- name: rows
-- Rows of these keys, with a session that ends at one of `ends`, from a range of batches, the newest first.
SELECT o.batch_id, o.session_key, o.revision, o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends, o.session_outputs,
    o.topics, o.keys, o.values, o.headers, o.partitions, o.timestamps_ms
FROM outbox.session_output o
WHERE o.batch_id BETWEEN %(from_batch)s AND %(to_batch)s AND o.session_key = ANY (%(keys)s::text[]) AND o.session_ends && %(ends)s::bigint[]
ORDER BY o.batch_id DESC

-- name: letters
-- For each session that has one (by its place, from 0 on): the newest letter that begins within the session.
SELECT DISTINCT ON (k.place) k.place - 1 AS place, d.dead_letter_id, d.reason, d.state
FROM unnest(%(keys)s::text[], %(topic_ids)s::text[], %(partitions)s::integer[], %(firsts)s::bigint[], %(ends)s::bigint[])
    WITH ORDINALITY AS k (session_key, topic_id, partition, first_offset, end_offset, place)
JOIN outbox.dead_letter d ON d.session_key = k.session_key AND d.topic_id = k.topic_id AND d.partition = k.partition
    AND d.first_offset BETWEEN k.first_offset AND k.end_offset
ORDER BY k.place, d.dead_letter_id DESC

-- name: erased
-- The places (from 0 on) of those sessions that begin among erased events of their key: a reissue stores none of them.
SELECT DISTINCT k.place - 1 AS place
FROM unnest(%(keys)s::text[], %(topic_ids)s::text[], %(partitions)s::integer[], %(firsts)s::bigint[])
    WITH ORDINALITY AS k (session_key, topic_id, partition, first_offset, place)
JOIN outbox.erased_offset e ON e.key_hash = outbox.key_hash(k.session_key) AND e.topic_id = k.topic_id AND e.partition = k.partition
WHERE k.first_offset <= e.through

-- name: first_since
-- The first stream batch with at least this id, or committed at this time or later.
SELECT coalesce(n.batch_id, t.batch_id) AS batch_id, coalesce(n.generation, t.generation) AS generation
FROM (VALUES (1)) AS one
LEFT JOIN LATERAL (
    SELECT b.batch_id, b.generation FROM outbox.batch b
    WHERE b.kind = 'stream' AND b.batch_id >= %(batch_id)s::bigint
    ORDER BY b.batch_id LIMIT 1) n ON true
LEFT JOIN LATERAL (
    SELECT b.batch_id, b.generation FROM outbox.batch b
    WHERE b.kind = 'stream'
      AND b.created_at >= coalesce(%(at)s::timestamptz, now() - make_interval(secs => %(age_s)s::double precision))
    ORDER BY b.created_at, b.batch_id LIMIT 1) t ON true
WHERE n.batch_id IS NOT NULL OR t.batch_id IS NOT NULL
