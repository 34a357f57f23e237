-- Takes back what 0004_audit_up.sql added.

DROP VIEW outbox.audit_reconciliation;
DROP FUNCTION outbox.audit_reconcile(bigint, bigint);
DROP VIEW outbox.audit_history, outbox.audit_replayed, outbox.audit_replay, outbox.audit_dead_letter_reason, outbox.audit_dead_letter,
    outbox.audit_undelivered_row, outbox.audit_undelivered, outbox.audit_minute, outbox.audit_topic_minute, outbox.audit_sent,
    outbox.audit_session_output, outbox.audit_session, outbox.check_parked, outbox.check_mirror, outbox.check_delivery_counts,
    outbox.check_delivery_chain, outbox.check_stray_row, outbox.check_rows_kept, outbox.audit_ledger;
DROP FUNCTION outbox.check_batch_counts(bigint, bigint), outbox.check_emitted_twice(bigint, bigint), outbox.batch_rows(bigint, bigint);

-- Without its last columns, so it has to be made again.
DROP VIEW outbox.event;
DROP VIEW outbox.output_row, outbox.output_partition, outbox.lane_position, outbox.epoch_range;
DROP FUNCTION outbox.cursor_covers(bigint, text, bigint, text, bigint, text), outbox.cursor_text(bigint, text);
DROP INDEX outbox.delivery_batches_idx;

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
    b.created_at AS committed_at,
    b.kind AS batch_kind,
    b.generation
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
