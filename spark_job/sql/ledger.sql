-- The ledger and the rows of its batches.

-- name: outbox_uuid
SELECT outbox_uuid FROM outbox.identity

-- name: first_lane_epoch
SELECT outbox.first_lane_epoch(%(lanes)s)

-- name: state
-- Read under the writer lock: the owner, the newest generation with its newest stream batch, the next batch id, and the number of lanes.
SELECT w.run_id, g.generation,
    (SELECT b.batch_id FROM outbox.batch b WHERE b.generation = g.generation AND b.kind = 'stream' ORDER BY b.batch_id DESC LIMIT 1) AS newest_stream,
    coalesce((SELECT max(batch_id) FROM outbox.batch), 0) + 1 AS next_batch,
    (SELECT lanes FROM outbox.lane_epoch ORDER BY epoch DESC LIMIT 1) AS lanes
FROM outbox.writer w
LEFT JOIN LATERAL (SELECT max(generation) AS generation FROM outbox.generation) g ON true

-- name: ensure_partitions
SELECT outbox.ensure_partitions(%(first_batch)s, %(last_batch)s)

-- name: copy_rows
COPY outbox.session_output (
    session_key, batch_id, lane, revision,
    session_topic_ids, session_partitions, session_starts, session_ends, session_started_ms, session_ended_ms, session_events, session_outputs,
    topics, "values", keys, headers, partitions, timestamps_ms
) FROM STDIN (FORMAT BINARY)

-- name: insert_batch
INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, part, run_id, start_offsets, end_offsets, open_state, input_events, sessions,
    output_events, output_bytes, dead_letters, duplicate_events, transform_fingerprint)
VALUES (%(batch_id)s, %(kind)s, %(generation)s, %(spark_batch)s, %(part)s, %(run_id)s, %(start_offsets)s, %(end_offsets)s, %(open_state)s,
    %(input_events)s, %(sessions)s, %(output_events)s, %(output_bytes)s, %(dead_letters)s, %(duplicate_events)s, %(transform_fingerprint)s)

-- name: notify_batch
-- The newest batch and the lanes that have rows, `7 0,3,12`: 1,024 lanes take 4 of the 8 kB that a payload may have.
SELECT outbox.wake('outbox_batch', %(batch_id)s::text || ' ' || %(lanes)s)

-- name: newest_stream
SELECT batch_id, end_offsets, open_state, created_at
FROM outbox.batch
WHERE generation = %(generation)s AND kind = 'stream'
ORDER BY batch_id DESC
LIMIT 1

-- name: stream_span
-- The first and the last stream batch of a generation that the ledger keeps.
SELECT
    (SELECT batch_id FROM outbox.batch WHERE generation = %(generation)s AND kind = 'stream' ORDER BY batch_id LIMIT 1),
    (SELECT batch_id FROM outbox.batch WHERE generation = %(generation)s AND kind = 'stream' ORDER BY batch_id DESC LIMIT 1)

-- name: stream_row
-- The newest stream row of a generation up to a batch.
SELECT batch_id, end_offsets, open_state, created_at
FROM outbox.batch
WHERE generation = %(generation)s AND kind = 'stream' AND batch_id <= %(batch_id)s
ORDER BY batch_id DESC
LIMIT 1

-- name: batch_before
-- The newest stream batch of an earlier generation that had not read beyond any of these offsets; walks back from the newest batch.
SELECT b.batch_id
FROM outbox.batch b
WHERE b.kind = 'stream' AND b.generation < %(generation)s
    AND NOT EXISTS (
        SELECT FROM jsonb_each(%(offsets)s::jsonb) AS t (topic_id, partitions)
        CROSS JOIN LATERAL jsonb_each_text(t.partitions) AS p (partition, first)
        WHERE coalesce((b.end_offsets -> t.topic_id ->> p.partition)::bigint, 0) > p.first::bigint)
ORDER BY b.batch_id DESC
LIMIT 1

-- name: closed_since
-- The sessions and outputs of the stream batches after one.
SELECT coalesce(sum(sessions), 0)::bigint, coalesce(sum(output_events), 0)::bigint
FROM outbox.batch
WHERE batch_id > %(batch_id)s AND kind = 'stream'

-- name: commits
-- Commit ids of these batches, the ledger's bounds, the accepted deliveries of lost batches, and the oldest lane epoch.
SELECT (SELECT min(batch_id) FROM outbox.batch) AS first, (SELECT max(batch_id) FROM outbox.batch) AS last,
    (SELECT jsonb_object_agg(b.batch_id, b.commit_id) FROM outbox.batch b WHERE b.batch_id = ANY (%(batches)s::bigint[])) AS commits,
    (SELECT jsonb_agg(a) FROM outbox.generation g CROSS JOIN LATERAL jsonb_array_elements(g.accepted_deliveries) a) AS accepted,
    (SELECT min(epoch) FROM outbox.lane_epoch) AS first_epoch

-- name: delivers_to
-- The Kafka cluster of the publishers, once one of them has recorded a transaction of any lane.
SELECT cluster_id FROM outbox.identity WHERE EXISTS (SELECT FROM outbox.lane WHERE seq > 0)

-- name: backlog_bounds
-- The last batch that every lane has finished, and the newest batch. A lane that no publisher has run yet stands before its epoch's first batch.
SELECT coalesce((SELECT min(p.through_batch) FROM outbox.lane_position p WHERE NOT p.ended), n.newest), n.newest
FROM (SELECT coalesce(max(batch_id), 0) AS newest FROM outbox.batch) n

-- name: outputs_between
SELECT coalesce(sum(b.output_events), 0)::bigint AS events, coalesce(sum(b.output_bytes), 0)::bigint AS bytes
FROM outbox.batch b
WHERE b.batch_id > %(after)s AND b.batch_id <= %(to)s

-- name: rates
-- What was committed within the last minute and the last five minutes, by the index on created_at.
SELECT w.seconds, count(DISTINCT (b.run_id, b.spark_batch)) FILTER (WHERE b.kind = 'stream') AS batches,
    coalesce(sum(b.input_events), 0)::bigint AS input_events, coalesce(sum(b.sessions), 0)::bigint AS sessions,
    coalesce(sum(b.output_events), 0)::bigint AS output_events, coalesce(sum(b.dead_letters), 0)::bigint AS dead_letters,
    coalesce(sum(b.duplicate_events), 0)::bigint AS duplicate_events
FROM unnest(ARRAY[60, 300]) AS w (seconds)
LEFT JOIN outbox.batch b ON b.kind <> 'requeue' AND b.created_at > now() - make_interval(secs => w.seconds)
GROUP BY w.seconds
ORDER BY w.seconds

-- name: newest
SELECT b.batch_id, b.kind, b.created_at FROM outbox.batch b ORDER BY b.batch_id DESC LIMIT 1
