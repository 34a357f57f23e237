SELECT e.outbox_id, e.topic, e.key, e.target_partition, e.event_timestamp, e.headers, e.value
FROM outbox.event e
WHERE e.batch_id = %(batch_id)s AND e.session_key = %(session_key)s
ORDER BY e.input_topic_id, e.input_partition, e.session_end_offset, split_part(e.outbox_id, '/', 4)::integer
