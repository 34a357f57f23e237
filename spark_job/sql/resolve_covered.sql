-- Open letters whose events lie within a session of these batches, of their revision or a later one. A malformed record is in no session.
UPDATE outbox.dead_letter d
SET state = 'resolved', resolved_batch = o.batch_id, state_changed_at = clock_timestamp()
FROM outbox.session_output o,
    unnest(o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends) AS s (topic_id, partition, first_offset, end_offset)
WHERE o.batch_id BETWEEN %(first_batch)s AND %(last_batch)s AND o.session_key = ANY (%(keys)s::text[])
    AND d.session_key = o.session_key AND d.state = 'open' AND d.reason <> 'malformed' AND d.revision <= o.revision
    AND d.topic_id = s.topic_id AND d.partition = s.partition AND d.first_offset >= s.first_offset AND d.last_offset <= s.end_offset
