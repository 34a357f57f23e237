WITH new AS (
    INSERT INTO outbox.dead_letter (topic_id, topic, partition, first_offset, last_offset, closing_offset, reason, revision, generation, batch_id,
        session_key, detail, event_count, event_offsets, event_times_ms, event_values, event_types)
    SELECT l.topic_id, l.topic, l.partition, l.first_offset, l.last_offset, l.closing_offset, l.reason, %(revision)s, %(generation)s, %(batch_id)s,
        l.session_key, l.detail, l.event_count, l.event_offsets, l.event_times_ms, l.event_values, l.event_types
    FROM pg_temp.letter_stage l
    -- A letter of an earlier generation's range: only where that one left none (of whatever revision), and no output and no letter has covered
    -- its events since.
    WHERE NOT l.below_high_water OR NOT (
        EXISTS (
            SELECT FROM outbox.dead_letter d
            WHERE d.topic_id = l.topic_id AND d.partition = l.partition AND d.first_offset = l.first_offset AND d.reason = l.reason
        )
        -- A malformed record is in no session, not even in one that began before it and ended after it.
        OR l.reason <> 'malformed' AND EXISTS (
            SELECT FROM outbox.session_output o,
                unnest(o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends) AS s (topic_id, partition, first_offset, end_offset)
            WHERE o.session_key = l.session_key AND s.topic_id = l.topic_id AND s.partition = l.partition
                AND s.first_offset <= l.first_offset AND s.end_offset >= l.last_offset
        )
        -- Reading again may begin inside a session that was dead-lettered then: its rest can look like a session where its start was repeated.
        OR l.reason <> 'malformed' AND EXISTS (
            SELECT FROM outbox.dead_letter d
            WHERE d.session_key = l.session_key AND d.topic_id = l.topic_id AND d.partition = l.partition
                AND d.first_offset <= l.first_offset AND d.last_offset >= l.last_offset
        )
    )
    ON CONFLICT ON CONSTRAINT dead_letter_identity_key DO NOTHING
    RETURNING reason
)
SELECT reason, count(*) FROM new GROUP BY reason
