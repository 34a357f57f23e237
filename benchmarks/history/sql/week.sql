-- A synthetic week of a pipeline: ledger, rows, dead letters and deliveries that agree, in which every number follows from a slot's.
--
-- The input is cut into slots of 102 offsets, dealt out to its 8 partitions in turn. A slot holds a session, or every 101st time a dead
-- letter. A batch takes 504 slots in order. A session has 20 outputs: 12, 6 and 1 for three topics, and one for either of two others.

-- name: prepare
WITH identity AS (
    UPDATE outbox.identity
    SET cluster_id = 'synthetic', transactional_id_prefix = 'outbox',
        output_topic_ids = (SELECT jsonb_object_agg(topic, left(md5(topic), 22))
                            FROM unnest('{shop.clicks,shop.funnel,shop.sessions,shop.exits,shop.orders}'::text[]) topic)
), epoch AS (
    INSERT INTO outbox.lane_epoch (epoch, from_batch, lanes, created_at) VALUES (1, 1, 8, now() - interval '7 days')
), lane AS (
    INSERT INTO outbox.lane (epoch, lane) SELECT 1, n FROM generate_series(0, 7) n
), generation AS (
    INSERT INTO outbox.generation (generation, start_offsets, topics, reason, policy, assembly, run_id, created_at)
    SELECT 1, jsonb_build_object(%(topic_id)s::text, jsonb_object_agg(p, 0)), jsonb_build_object(%(topic_id)s::text, 'session-events'),
           'first', 'skip', '{}', %(run_id)s, now() - interval '7 days'
    FROM generate_series(0, 7) p
)
INSERT INTO outbox.run (run_id, generation, restored, resumes_at, explanation, attempt, transform_fingerprint, host, pid, system_identifier,
    timeline, started_at)
SELECT %(run_id)s, 1, 'fresh', '{}', '', 1, 'history', 'synthetic', 1, s.system_identifier, s.timeline, now() - interval '7 days'
FROM outbox.server_identity() s

-- name: insert_batches
INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, commit_id, run_id, start_offsets, end_offsets, open_state, input_events,
    sessions, output_events, output_bytes, dead_letters, transform_fingerprint, created_at)
SELECT b, 'stream', 1, b - 1, md5(b::text)::uuid, %(run_id)s, o.before, o.after, '{}', 504 * 102, 504 - d.letters, (504 - d.letters) * 20,
       (504 - d.letters) * 20 * 37, d.letters, 'history', now() - interval '7 days' * (1 - b::float8 / %(batches)s)
FROM generate_series(1, %(batches)s) b
CROSS JOIN LATERAL (SELECT count(*) AS letters FROM generate_series((b - 1) * 504, b * 504 - 1) slot WHERE slot %% 101 = 100) d
CROSS JOIN LATERAL (
    SELECT jsonb_build_object(%(topic_id)s::text, jsonb_object_agg(p, (b - 1) * 63 * 102)) AS before,
           jsonb_build_object(%(topic_id)s::text, jsonb_object_agg(p, b * 63 * 102)) AS after
    FROM generate_series(0, 7) p) o

-- name: insert_rows
-- Keys are spread over the key space, as uuids are; every fiftieth comes again.
INSERT INTO outbox.session_output (session_key, batch_id, lane, revision, session_topic_ids, session_partitions, session_starts, session_ends,
    session_started_ms, session_ended_ms, session_events, session_outputs, topics, "values")
SELECT 'sess-' || k.key, b.batch_id, slot %% 8, 0, ARRAY[%(topic_id)s], ARRAY[slot %% 8], ARRAY[slot / 8 * 102],
       ARRAY[slot / 8 * 102 + 101], ARRAY[t.ended_ms - 1500], ARRAY[t.ended_ms], ARRAY[102], ARRAY[20],
       array_fill('shop.clicks'::text, ARRAY[12]) || array_fill('shop.funnel'::text, ARRAY[6]) || 'shop.sessions'::text
           || CASE WHEN slot %% 20 = 3 THEN 'shop.orders' ELSE 'shop.exits' END,
       ARRAY(SELECT convert_to('{"n":' || lpad(n::text, 2) || ',"session":"' || k.key || '"}', 'UTF8') FROM generate_series(1, 20) n)
FROM outbox.batch b
CROSS JOIN generate_series((b.batch_id - 1) * 504, b.batch_id * 504 - 1) slot
CROSS JOIN LATERAL (
    SELECT left(md5((CASE WHEN slot %% 50 = 7 AND slot > 40001 THEN slot - 40001 ELSE slot END)::text), 16) AS key) k
CROSS JOIN LATERAL (SELECT (extract(epoch FROM b.created_at) * 1000)::bigint - 500 - slot %% 400 AS ended_ms) t
WHERE b.batch_id BETWEEN %(first)s AND %(last)s AND slot %% 101 <> 100

-- name: insert_dead_letters
INSERT INTO outbox.dead_letter (topic_id, topic, partition, first_offset, last_offset, closing_offset, reason, generation, batch_id, session_key,
    detail, event_count, event_offsets, event_times_ms, event_values, state, state_changed_at, created_at)
SELECT %(topic_id)s, 'session-events', slot %% 8, e.first, e.first + e.events - 1, e.first + CASE WHEN e.events = 1 THEN 0 ELSE 101 END, e.reason, 1,
       b.batch_id, CASE WHEN e.reason <> 'malformed' THEN 'sess-' || left(md5(slot::text), 16) END, 'synthetic', e.events,
       ARRAY(SELECT generate_series(e.first, e.first + e.events - 1)),
       ARRAY(SELECT (extract(epoch FROM b.created_at) * 1000)::bigint - 2000 + 15 * n FROM generate_series(1, e.events) n),
       ARRAY(SELECT convert_to('{"page":"' || n || '"}', 'UTF8') FROM generate_series(1, e.events) n),
       CASE WHEN slot %% 997 = 0 THEN 'discarded' ELSE 'open' END, b.created_at, b.created_at
FROM outbox.batch b
CROSS JOIN generate_series((b.batch_id - 1) * 504, b.batch_id * 504 - 1) slot
CROSS JOIN LATERAL (
    SELECT slot / 8 * 102 AS first, r.reason, CASE WHEN r.reason IN ('restarted', 'timed_out') THEN 12 ELSE 1 END AS events
    FROM (VALUES (('{malformed,no_start,malformed,restarted,malformed,timed_out}'::text[])[1 + slot / 101 %% 6])) r (reason)) e
WHERE slot %% 101 = 100

-- name: insert_deliveries
-- One Kafka transaction for each batch and lane, up to the newest batches, of which each lane has left some. Lane n writes to output
-- partition n modulo 4; a transaction's marker takes an offset behind its records.
INSERT INTO outbox.delivery (epoch, lane, seq, after_batch, to_batch, sessions, events, kafka_offsets, committed_at)
WITH sent AS (
    SELECT b.batch_id, lane, b.created_at + (60 + 5 * lane) * interval '1 ms' AS at, count(*) AS sessions, count(*) FILTER (WHERE slot %% 20 = 3) AS orders
    FROM outbox.batch b
    CROSS JOIN generate_series(0, 7) lane
    CROSS JOIN generate_series((b.batch_id - 1) * 504 + lane, b.batch_id * 504 - 1, 8) slot
    WHERE slot %% 101 <> 100 AND b.batch_id <= %(batches)s - 2 - lane %% 3
    GROUP BY 1, 2, 3
), by_topic AS (
    SELECT s.*, t.topic, t.events,
           sum(t.events + 1) OVER (PARTITION BY t.topic, lane %% 4 ORDER BY at, lane) - t.events - 1 AS first
    FROM sent s
    CROSS JOIN LATERAL (VALUES ('shop.clicks', 12 * sessions), ('shop.funnel', 6 * sessions), ('shop.sessions', sessions),
                               ('shop.exits', sessions - orders), ('shop.orders', orders)) t (topic, events)
    WHERE t.events > 0
)
SELECT 1, lane, batch_id, batch_id - 1, batch_id, sessions, 20 * sessions,
       jsonb_object_agg(topic, jsonb_build_object(lane %% 4, jsonb_build_array(first, first + events - 1))), at
FROM by_topic
GROUP BY batch_id, lane, at, sessions

-- name: advance_lanes
UPDATE outbox.lane l
SET seq = d.seq, cursor_batch = d.batch, cursor_commit_id = md5(d.batch::text)::uuid, sessions = d.sessions, events = d.events, mirrored_at = d.at
FROM (SELECT lane, max(seq) AS seq, max(to_batch) AS batch, sum(sessions) AS sessions, sum(events) AS events, max(committed_at) AS at
      FROM outbox.delivery GROUP BY lane) d
WHERE d.lane = l.lane

-- name: insert_replays
INSERT INTO outbox.replay (state, from_batch, to_batch, topics, requested, target_cluster_id, target_servers, rows_total, events_total, seq, cursor_batch,
    rows_sent, events_sent, created_at, state_changed_at)
SELECT r.state, b.batch_id, b.batch_id + 9, r.topics, '{}', 'synthetic', 'localhost:9092', s.rows, s.rows * r.events, s.rows / 1000, b.batch_id + 9,
       s.rows, s.rows * r.events, b.created_at + interval '1 hour', b.created_at + interval '2 hours'
FROM (VALUES ('done', 0.2, NULL::text[], 20), ('done', 0.5, ARRAY['shop.clicks'], 12), ('cancelled', 0.7, ARRAY['shop.funnel'], 6))
    AS r (state, share, topics, events)
CROSS JOIN LATERAL (SELECT * FROM outbox.batch WHERE batch_id = greatest(1, (%(batches)s * r.share)::bigint)) b
CROSS JOIN LATERAL (SELECT sum(sessions) AS rows FROM outbox.batch WHERE batch_id BETWEEN b.batch_id AND b.batch_id + 9) s
