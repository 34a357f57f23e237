-- From a position in the input to the sessions that closed there.

-- name: topic_ids
-- The ids under which the job has known a topic. A topic that was deleted and created again has several. An id is accepted in place of a
-- name.
SELECT DISTINCT t.id
FROM outbox.generation g
CROSS JOIN LATERAL jsonb_each_text(g.topics) AS t (id, name)
WHERE t.name = %(topic)s OR t.id = %(topic)s
ORDER BY t.id
LIMIT 20

-- name: batches
-- In each generation, the first stream batch that read beyond the offset, newest generation first. Its sessions end at the offset or later.
-- A binary search: end offsets grow with batch_id within a generation, and each step reads one entry of the index on stream positions.
WITH RECURSIVE span AS (
    SELECT g.generation, first.batch_id AS low, last.batch_id AS high
    FROM outbox.generation g
    CROSS JOIN LATERAL (
        SELECT b.batch_id FROM outbox.batch b
        WHERE b.generation = g.generation AND b.kind = 'stream' ORDER BY b.batch_id LIMIT 1) first
    CROSS JOIN LATERAL (
        SELECT b.batch_id, (b.end_offsets #>> ARRAY[%(topic_id)s, %(partition)s::text])::bigint AS read_to FROM outbox.batch b
        WHERE b.generation = g.generation AND b.kind = 'stream' ORDER BY b.batch_id DESC LIMIT 1) last
    WHERE coalesce((g.start_offsets #>> ARRAY[%(topic_id)s, %(partition)s::text])::bigint, 0) <= %(offset)s
      AND last.read_to > %(offset)s
    ORDER BY g.generation DESC
    LIMIT 50
), search AS (
    SELECT s.generation, s.low, s.high, s.high AS found FROM span s
    UNION ALL
    SELECT s.generation,
           CASE WHEN probe.is_beyond THEN s.low ELSE probe.batch_id + 1 END,
           CASE WHEN probe.is_beyond THEN (s.low + s.high) / 2 - 1 ELSE s.high END,
           CASE WHEN probe.is_beyond THEN probe.batch_id ELSE s.found END
    FROM search s
    CROSS JOIN LATERAL (
        SELECT b.batch_id,
               coalesce((b.end_offsets #>> ARRAY[%(topic_id)s, %(partition)s::text])::bigint > %(offset)s, false) AS is_beyond
        FROM outbox.batch b
        WHERE b.generation = s.generation AND b.kind = 'stream' AND b.batch_id >= (s.low + s.high) / 2
        ORDER BY b.batch_id LIMIT 1) probe
    WHERE s.low <= s.high
)
SELECT s.found FROM search s WHERE s.low > s.high ORDER BY s.generation DESC

-- name: sessions
-- Sessions around an offset, from the given batch on, until the batches have too many sessions: a session closes seconds after its events.
-- A session that begins or ends at the offset comes first.
SELECT o.session_key, o.batch_id, s.topic_id, s.partition, s.start_offset, s.end_offset
FROM (
    SELECT max(n.batch_id) AS last_batch
    FROM (
        SELECT b.batch_id, sum(b.sessions) OVER (ORDER BY b.batch_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
        FROM outbox.batch b
        WHERE b.batch_id >= %(batch_id)s AND b.batch_id < %(batch_id)s + %(batches)s
    ) n
    WHERE coalesce(n.before, 0) < %(most_sessions)s
) bound
CROSS JOIN outbox.batch_rows(%(batch_id)s, %(batch_id)s + %(batches)s) o
CROSS JOIN LATERAL unnest(o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends)
    AS s (topic_id, partition, start_offset, end_offset)
WHERE o.batch_id <= bound.last_batch
  AND s.topic_id = %(topic_id)s AND s.partition = %(partition)s AND s.start_offset <= %(offset)s AND s.end_offset >= %(offset)s
ORDER BY s.end_offset <> %(offset)s, s.start_offset <> %(offset)s, s.start_offset, o.batch_id
LIMIT %(rows)s

-- name: letters
-- Dead letters with the event at an offset, or whose last or closing offset it is, among the letters that begin at or shortly before it.
SELECT d.dead_letter_id, d.session_key, d.reason, d.state, d.batch_id
FROM (
    SELECT * FROM outbox.dead_letter n
    WHERE n.topic_id = %(topic_id)s AND n.partition = %(partition)s AND n.first_offset <= %(offset)s
    ORDER BY n.first_offset DESC
    LIMIT 500
) d
WHERE %(offset)s = ANY (d.event_offsets) OR d.closing_offset = %(offset)s OR d.last_offset = %(offset)s
ORDER BY d.dead_letter_id
LIMIT %(rows)s
