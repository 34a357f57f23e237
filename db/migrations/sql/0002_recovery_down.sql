-- Takes back what 0002_recovery_up.sql added. The view is made anew, because its columns cannot be taken away.

DROP VIEW outbox.event;
DROP TABLE outbox.request, outbox.savepoint, outbox.run;
DROP INDEX outbox.dead_letter_place_idx;
CREATE INDEX dead_letter_session_key_idx ON outbox.dead_letter (session_key);
ALTER TABLE outbox.dead_letter DROP COLUMN event_types;
ALTER TABLE outbox.writer DROP COLUMN held_back_since, DROP COLUMN held_back_because;
ALTER TABLE outbox.batch DROP COLUMN output_bytes;
ALTER TABLE outbox.generation DROP COLUMN from_generation, DROP COLUMN from_batch, DROP COLUMN savepoint, DROP COLUMN read_again,
    DROP COLUMN explanation, DROP COLUMN cut_offsets;

CREATE VIEW outbox.event AS
SELECT
    o.batch_id,
    o.session_key,
    s.topic_id || '/' || s.partition || '/' || s.end_offset || '/' || (e.n - s.before - 1) AS outbox_id,
    o.revision,
    e.topic,
    coalesce(e.key, convert_to(o.session_key, 'UTF8')) AS key,
    e.value,
    outbox.try_json(e.value) AS value_json,
    e.headers,
    e.partition AS target_partition,
    to_timestamp(e.timestamp_ms / 1000.0) AS event_timestamp,
    s.topic_id AS input_topic_id,
    s.partition AS input_partition,
    s.start_offset AS session_start_offset,
    s.end_offset AS session_end_offset,
    to_timestamp(s.started_ms / 1000.0) AS session_started_at,
    to_timestamp(s.ended_ms / 1000.0) AS session_ended_at,
    o.lane,
    CASE
        WHEN p.state IS NOT NULL THEN p.state
        WHEN l.cursor_batch > o.batch_id OR (l.cursor_batch = o.batch_id AND (l.cursor_key IS NULL OR l.cursor_key >= o.session_key))
            THEN 'delivered'
        ELSE 'pending'
    END AS delivery_state,
    b.created_at AS committed_at
FROM outbox.session_output o
JOIN outbox.batch b ON b.batch_id = o.batch_id
CROSS JOIN LATERAL (
    SELECT t.*, sum(t.outputs) OVER (ORDER BY t.n) - t.outputs AS before
    FROM unnest(o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends,
                o.session_started_ms, o.session_ended_ms, o.session_outputs)
         WITH ORDINALITY AS t (topic_id, partition, start_offset, end_offset, started_ms, ended_ms, outputs, n)
) s
JOIN LATERAL unnest(o.topics, o.keys, o."values", o.headers, o.partitions, o.timestamps_ms)
    WITH ORDINALITY AS e (topic, key, value, headers, partition, timestamp_ms, n)
    ON e.n > s.before AND e.n <= s.before + s.outputs
LEFT JOIN LATERAL (SELECT epoch FROM outbox.lane_epoch WHERE from_batch <= o.batch_id ORDER BY from_batch DESC LIMIT 1) ep ON true
LEFT JOIN outbox.lane l ON l.epoch = ep.epoch AND l.lane = o.lane
LEFT JOIN outbox.parked p ON p.session_key = o.session_key AND p.batch_id = o.batch_id;

GRANT SELECT ON outbox.event TO outbox_writer, outbox_publisher, outbox_auditor;
