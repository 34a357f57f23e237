-- After an upgrade from before schema 0005: letters that close below the batch, which the old version has written, or whose events an
-- output of its covers.
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
