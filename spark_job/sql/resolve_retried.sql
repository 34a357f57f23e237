-- Each by the batch that holds its session: one that starts with the letter's first event.
UPDATE outbox.dead_letter d
SET state = 'resolved', resolved_batch = o.batch_id, state_changed_at = clock_timestamp()
FROM outbox.session_output o,
    unnest(o.session_topic_ids, o.session_partitions, o.session_starts) AS s (topic_id, partition, first_offset)
WHERE o.batch_id BETWEEN %(first_batch)s AND %(last_batch)s AND d.dead_letter_id = ANY (%(ids)s::bigint[]) AND d.state = 'open'
    AND d.session_key = o.session_key AND d.topic_id = s.topic_id AND d.partition = s.partition AND d.first_offset = s.first_offset
