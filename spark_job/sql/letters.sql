-- Dead letters: written with a batch, later listed, retried, discarded or resolved.

-- name: create_stage
CREATE TEMPORARY TABLE letter_stage (
    topic_id text, topic text, partition integer, first_offset bigint, last_offset bigint, closing_offset bigint, reason text,
    session_key text COLLATE "C", detail text, event_count integer, event_offsets bigint[], event_times_ms bigint[], event_values bytea[], event_types text[]
) ON COMMIT DROP

-- name: copy_stage
COPY pg_temp.letter_stage FROM STDIN (FORMAT BINARY)

-- name: drop_settled
-- After an upgrade from before schema 0005: of the letters that close below the batch, drop those that the old version has written, and those
-- whose first event one of its outputs covers.
DELETE FROM pg_temp.letter_stage l
WHERE l.reason = 'timed_out' AND l.closing_offset < coalesce((%(start)s::jsonb -> l.topic_id ->> l.partition::text)::bigint, 0)
    AND (
        EXISTS (
            SELECT FROM outbox.dead_letter d
            WHERE d.topic_id = l.topic_id AND d.partition = l.partition AND d.session_key = l.session_key
                AND d.first_offset <= l.first_offset AND d.last_offset >= l.first_offset)
        OR EXISTS (
            SELECT FROM outbox.session_output o,
                unnest(o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends) AS s (topic_id, partition, first_offset, end_offset)
            WHERE o.batch_id >= %(since)s AND o.session_key = l.session_key AND s.topic_id = l.topic_id AND s.partition = l.partition
                AND s.first_offset <= l.first_offset AND s.end_offset >= l.first_offset)
    )

-- name: resolve_rewritten
-- Resolve open letters of an earlier revision if a letter of this reissue covers their events.
UPDATE outbox.dead_letter d
SET state = 'resolved', resolved_batch = %(batch_id)s
FROM pg_temp.letter_stage l
WHERE d.session_key IS NOT DISTINCT FROM l.session_key AND d.topic_id = l.topic_id AND d.partition = l.partition
    -- The third condition follows from the others. It bounds the index scan: without it, each letter visits all later ones of its partition.
    AND d.first_offset >= l.first_offset AND d.last_offset <= l.last_offset AND d.first_offset <= l.last_offset
    AND d.state = 'open' AND d.revision < %(revision)s

-- name: insert
WITH new AS (
    INSERT INTO outbox.dead_letter (topic_id, topic, partition, first_offset, last_offset, closing_offset, reason, revision, generation, batch_id,
        session_key, detail, event_count, event_offsets, event_times_ms, event_values, event_types)
    SELECT l.topic_id, l.topic, l.partition, l.first_offset, l.last_offset, l.closing_offset, l.reason, %(revision)s, %(generation)s, %(batch_id)s,
        l.session_key, l.detail, l.event_count, l.event_offsets, l.event_times_ms, l.event_values, l.event_types
    FROM pg_temp.letter_stage l
    ON CONFLICT ON CONSTRAINT dead_letter_identity_key DO NOTHING
    RETURNING reason
)
SELECT reason, count(*) FROM new GROUP BY reason

-- name: horizon
-- For each partition, the start of the last open letter of an earlier generation at or above the safe offset. The index leads from one partition
-- with letters to the next, so the cost does not depend on the letters below. A partition that the position does not name is read from its beginning.
WITH RECURSIVE place AS (
    (SELECT topic_id, partition FROM outbox.dead_letter ORDER BY topic_id, partition LIMIT 1)
    UNION ALL
    SELECT n.topic_id, n.partition
    FROM place p
    CROSS JOIN LATERAL (
        SELECT d.topic_id, d.partition
        FROM outbox.dead_letter d
        WHERE (d.topic_id, d.partition) > (p.topic_id, p.partition)
        ORDER BY d.topic_id, d.partition
        LIMIT 1
    ) n
)
SELECT p.topic_id, p.partition, l.first_offset
FROM place p
LEFT JOIN unnest(%(topic_ids)s::text[], %(partitions)s::integer[], %(safe)s::bigint[]) AS s (topic_id, partition, safe) USING (topic_id, partition)
CROSS JOIN LATERAL (
    SELECT d.first_offset
    FROM outbox.dead_letter d
    WHERE d.topic_id = p.topic_id AND d.partition = p.partition AND d.first_offset >= coalesce(s.safe, 0)
        AND d.state = 'open' AND d.reason <> 'malformed' AND d.generation < %(generation)s
    ORDER BY d.first_offset DESC
    LIMIT 1
) l

-- name: resolve_covered
-- Resolve open letters whose events lie within a session of these batches that has their revision or a later one. A malformed record is in no
-- session. A letter's last offset may be that of a dropped duplicate, behind the session's end: if all events are kept, the last of them counts.
-- The subquery reads the index of places for each session. A join by the key alone would compare each session with all letters of its key.
UPDATE outbox.dead_letter d
SET state = 'resolved', resolved_batch = c.batch_id
FROM (
    SELECT l.dead_letter_id, o.batch_id
    FROM outbox.session_output o
    CROSS JOIN LATERAL unnest(o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends)
        AS s (topic_id, partition, first_offset, end_offset)
    CROSS JOIN LATERAL (
        SELECT n.dead_letter_id
        FROM outbox.dead_letter n
        WHERE n.session_key = o.session_key AND n.topic_id = s.topic_id AND n.partition = s.partition
            AND n.first_offset BETWEEN s.first_offset AND s.end_offset AND n.reason <> 'malformed' AND n.revision <= o.revision
            AND CASE cardinality(n.event_offsets) WHEN n.event_count THEN n.event_offsets[n.event_count] ELSE n.last_offset END <= s.end_offset
        OFFSET 0
    ) l
    WHERE o.batch_id BETWEEN %(first_batch)s AND %(last_batch)s AND o.session_key = ANY (%(keys)s::text[])
) c
WHERE d.dead_letter_id = c.dead_letter_id AND d.state = 'open'

-- name: list
SELECT dead_letter_id, reason, state, session_key, topic, partition, first_offset, last_offset, closing_offset, revision, generation, batch_id,
    event_count, cardinality(event_offsets) AS kept, resolved_batch, created_at, detail
FROM outbox.dead_letter
WHERE (%(ids)s::bigint[] IS NULL OR dead_letter_id = ANY (%(ids)s::bigint[]))
    AND (%(reasons)s::text[] IS NULL OR reason = ANY (%(reasons)s::text[]))
    AND (%(state)s::text IS NULL OR state = %(state)s::text)
    AND (%(key)s::text IS NULL OR session_key = %(key)s::text)
    AND (%(mentioned)s::text[] IS NULL OR session_key = ANY (%(mentioned)s::text[])
        OR (session_key IS NULL AND EXISTS (
            SELECT FROM unnest(%(mentioned)s::text[]) AS k, unnest(event_values) AS v WHERE position(convert_to(k, 'UTF8') IN v) > 0)))
    AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
ORDER BY dead_letter_id
LIMIT %(rows)s

-- name: count
SELECT reason, state, count(*) AS letters, sum(event_count)::bigint AS events
FROM outbox.dead_letter
WHERE (%(ids)s::bigint[] IS NULL OR dead_letter_id = ANY (%(ids)s::bigint[]))
    AND (%(reasons)s::text[] IS NULL OR reason = ANY (%(reasons)s::text[]))
    AND (%(state)s::text IS NULL OR state = %(state)s::text)
    AND (%(key)s::text IS NULL OR session_key = %(key)s::text)
    AND (%(mentioned)s::text[] IS NULL OR session_key = ANY (%(mentioned)s::text[])
        OR (session_key IS NULL AND EXISTS (
            SELECT FROM unnest(%(mentioned)s::text[]) AS k, unnest(event_values) AS v WHERE position(convert_to(k, 'UTF8') IN v) > 0)))
    AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
GROUP BY reason, state
ORDER BY reason, state

-- name: read
SELECT dead_letter_id, topic_id, topic, partition, first_offset, last_offset, closing_offset, reason, revision, generation, batch_id,
    session_key, detail, event_count, event_offsets, event_times_ms, event_values, event_types, state, resolved_batch, state_changed_at, created_at
FROM outbox.dead_letter
WHERE dead_letter_id = ANY (%(ids)s::bigint[])
ORDER BY array_position(%(ids)s::bigint[], dead_letter_id)

-- name: open_counts
SELECT reason, count(*) FROM outbox.dead_letter WHERE state = 'open' GROUP BY reason ORDER BY reason

-- name: bounded_open_counts
-- A reason without letters counts 0, so that its first letter is an increase. No count exceeds `count_limit`.
SELECT r.reason,
       (SELECT count(*) FROM (SELECT FROM outbox.dead_letter d WHERE d.state = 'open' AND d.reason = r.reason LIMIT %(count_limit)s) counted)
FROM unnest(%(reasons)s::text[]) AS r (reason)

-- name: to_retry
-- In the order in which their outputs go out; a batch holds one revision. Compressed events may be 250 times larger than stored, so they are
-- read to get their size.
SELECT dead_letter_id, reason, revision,
    CASE WHEN pg_column_compression(event_values) IS NULL THEN pg_column_size(event_values)
        ELSE (SELECT coalesce(sum(octet_length(v)), 0) FROM unnest(event_values) v)::bigint END AS bytes
FROM outbox.dead_letter
WHERE (%(ids)s::bigint[] IS NULL OR dead_letter_id = ANY (%(ids)s::bigint[]))
    AND (%(reasons)s::text[] IS NULL OR reason = ANY (%(reasons)s::text[]))
    AND (%(state)s::text IS NULL OR state = %(state)s::text)
    AND (%(key)s::text IS NULL OR session_key = %(key)s::text)
    AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
ORDER BY revision, topic_id, partition, closing_offset, dead_letter_id

-- name: standings
-- What decides whether a letter may be retried now. If its events were read again, a newer letter makes it out of date. The letters of a generation
-- do not overlap: in each generation, only the last letter that begins no later than this one may hold its events.
SELECT d.dead_letter_id, d.state, d.resolved_batch,
    (
        SELECT max(n.dead_letter_id)
        FROM outbox.generation g
        CROSS JOIN LATERAL (
            SELECT o.dead_letter_id, o.generation, o.revision, o.state, o.last_offset
            FROM outbox.dead_letter o
            WHERE o.session_key = d.session_key AND o.topic_id = d.topic_id AND o.partition = d.partition AND o.reason <> 'malformed'
                AND (o.generation, o.first_offset) <= (g.generation, d.first_offset)
            ORDER BY o.generation DESC, o.first_offset DESC
            LIMIT 1
        ) n
        WHERE n.generation = g.generation AND n.state = 'open' AND n.last_offset >= d.last_offset
            AND (n.revision, n.dead_letter_id) > (d.revision, d.dead_letter_id)
    ) AS newer_letter
FROM outbox.dead_letter d
WHERE d.dead_letter_id = ANY (%(ids)s::bigint[])

-- name: was_read
-- The places (from 0 on) of those sessions whose events are known from elsewhere than a `malformed` letter: from an output of a range of batches,
-- from another letter (found as in `standings`), or of a key that was erased through them.
SELECT k.place - 1
FROM unnest(%(keys)s::text[], %(topic_ids)s::text[], %(partitions)s::integer[], %(firsts)s::bigint[], %(lasts)s::bigint[])
    WITH ORDINALITY AS k (session_key, topic_id, partition, first_offset, last_offset, place)
WHERE EXISTS (
        SELECT
        FROM outbox.generation g
        CROSS JOIN LATERAL (
            SELECT o.generation, o.last_offset
            FROM outbox.dead_letter o
            WHERE o.session_key = k.session_key AND o.topic_id = k.topic_id AND o.partition = k.partition AND o.reason <> 'malformed'
                AND (o.generation, o.first_offset) <= (g.generation, k.last_offset)
            ORDER BY o.generation DESC, o.first_offset DESC
            LIMIT 1
        ) n
        WHERE n.generation = g.generation AND n.last_offset >= k.first_offset)
    OR EXISTS (
        SELECT FROM outbox.session_output o,
            unnest(o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends) AS s (topic_id, partition, first_offset, end_offset)
        WHERE o.batch_id BETWEEN %(from_batch)s AND %(to_batch)s AND o.session_key = k.session_key
            AND s.topic_id = k.topic_id AND s.partition = k.partition AND s.first_offset <= k.last_offset AND s.end_offset >= k.first_offset)
    OR EXISTS (
        SELECT FROM outbox.erased_offset e
        WHERE e.key_hash = outbox.key_hash(k.session_key) AND e.topic_id = k.topic_id AND e.partition = k.partition AND e.through >= k.first_offset)

-- name: resolve_retried
-- Resolve each letter by the batch that holds its session. Several letters may have one session: each malformed event has its own letter.
UPDATE outbox.dead_letter d
SET state = 'resolved', resolved_batch = o.batch_id
FROM unnest(%(ids)s::bigint[], %(keys)s::text[], %(starts)s::bigint[]) AS r (dead_letter_id, session_key, first_offset),
    outbox.session_output o,
    unnest(o.session_topic_ids, o.session_partitions, o.session_starts) AS s (topic_id, partition, first_offset)
WHERE o.batch_id BETWEEN %(first_batch)s AND %(last_batch)s AND d.dead_letter_id = r.dead_letter_id AND d.state = 'open'
    AND o.session_key = r.session_key AND d.topic_id = s.topic_id AND d.partition = s.partition AND s.first_offset = r.first_offset

-- name: newest
SELECT coalesce(max(dead_letter_id), 0) FROM outbox.dead_letter

-- name: to_discard
-- The next open letters that match, by number.
SELECT dead_letter_id
FROM outbox.dead_letter
WHERE dead_letter_id > %(after)s AND dead_letter_id <= %(newest)s AND state = 'open'
    AND (%(ids)s::bigint[] IS NULL OR dead_letter_id = ANY (%(ids)s::bigint[]))
    AND (%(reasons)s::text[] IS NULL OR reason = ANY (%(reasons)s::text[]))
    AND (%(state)s::text IS NULL OR state = %(state)s::text)
    AND (%(key)s::text IS NULL OR session_key = %(key)s::text)
    AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
ORDER BY dead_letter_id
LIMIT %(rows)s

-- name: discard
UPDATE outbox.dead_letter
SET state = 'discarded'
WHERE dead_letter_id = ANY (%(ids)s::bigint[]) AND state = 'open'
RETURNING dead_letter_id

-- name: removed_up_to
-- The greatest number of a letter that retention has removed; NULL if it has removed none.
SELECT max(newest_id) FROM outbox.removed_letters
