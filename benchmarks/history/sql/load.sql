-- Fills the tables beside session_output with the synthetic week.

-- name: insert_generation
INSERT INTO outbox.generation (generation, start_offsets, open_state, topics, reason, policy, assembly, run_id,
    from_generation, from_batch, savepoint, created_at)
VALUES (%(generation)s, %(start)s, %(open_state)s, %(topics)s, %(reason)s, 'skip', '{}', %(run_id)s, %(from_generation)s,
    %(from_batch)s, CASE WHEN %(reason)s = 'savepoint' THEN 'before-deploy' END, %(started_at)s)

-- name: insert_run
INSERT INTO outbox.run (run_id, generation, restored, resumes_at, explanation, attempt, transform_fingerprint, host, pid, system_identifier,
    timeline, started_at, ended_at, ended_because)
SELECT %(run_id)s, %(generation)s, %(restored)s, %(start)s, '', 1, 'history', 'synthetic', 1, s.system_identifier, s.timeline, %(started_at)s,
       %(ended_at)s, CASE WHEN %(ended_at)s::timestamptz IS NOT NULL THEN 'stopped' END
FROM outbox.server_identity() s

-- name: copy_batch
COPY outbox.batch (batch_id, kind, generation, spark_batch, commit_id, run_id, start_offsets, end_offsets, open_state, input_events,
    sessions, output_events, output_bytes, dead_letters, transform_fingerprint, created_at) FROM STDIN

-- name: copy_dead_letter
COPY outbox.dead_letter (topic_id, topic, partition, first_offset, last_offset, closing_offset, reason, generation, batch_id, session_key, detail,
    event_count, event_offsets, event_times_ms, event_values, state, resolved_batch, state_changed_at, created_at) FROM STDIN

-- name: insert_lane_epoch
INSERT INTO outbox.lane_epoch (epoch, from_batch, lanes, created_at)
VALUES (%(epoch)s, %(from_batch)s, %(lanes)s, %(created_at)s)

-- name: copy_lane
COPY outbox.lane (epoch, lane, seq, cursor_batch, cursor_key, cursor_commit_id, sessions, events, mirrored_at) FROM STDIN

-- name: copy_delivery
COPY outbox.delivery (epoch, lane, seq, after_batch, after_key, to_batch, to_key, sessions, events, kafka_offsets, committed_at) FROM STDIN

-- name: copy_parked
COPY outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail, state, requeued_batch, state_changed_at, created_at) FROM STDIN

-- name: insert_savepoint
INSERT INTO outbox.savepoint (name, generation, batch_id, end_offsets, open_state, lineage, assembly, topics, revision, created_at)
SELECT 'before-deploy', g.from_generation, g.from_batch, b.end_offsets, b.open_state, '[]', g.assembly, g.topics, g.revision, g.created_at
FROM outbox.generation g
JOIN outbox.batch b ON b.batch_id = g.from_batch
WHERE g.reason = 'savepoint'

-- name: insert_replays
INSERT INTO outbox.replay (state, from_batch, to_batch, topics, requested, target_cluster_id, target_servers, rows_total, events_total, seq, cursor_batch,
    rows_sent, events_sent, created_at, state_changed_at)
SELECT r.state, b.batch_id, b.batch_id + 9, r.topics, '{}', 'synthetic', 'localhost:9092', s.rows, s.rows * r.events, s.rows / 1000, b.batch_id + 9,
       s.rows, s.rows * r.events, b.created_at + interval '1 hour', b.created_at + interval '2 hours'
FROM (VALUES ('done', 0.2, NULL::text[], 20), ('done', 0.5, ARRAY['shop.clicks'], 12), ('cancelled', 0.7, ARRAY['shop.funnel'], 6))
    AS r (state, share, topics, events)
CROSS JOIN LATERAL (SELECT * FROM outbox.batch WHERE batch_id = (SELECT (max(batch_id) * r.share)::bigint FROM outbox.batch)) b
CROSS JOIN LATERAL (SELECT sum(sessions) AS rows FROM outbox.batch WHERE batch_id BETWEEN b.batch_id AND b.batch_id + 9) s

-- name: set_identity
UPDATE outbox.identity
SET cluster_id = 'synthetic', transactional_id_prefix = 'outbox',
    output_topic_ids = (SELECT jsonb_object_agg(topic, left(md5(topic), 22)) FROM unnest(%(topics)s::text[]) topic)
