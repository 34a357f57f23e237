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
