-- The bounds beside the join prune partitions.
SELECT o.batch_id, o.session_key, o.revision, o.session_topic_ids, o.session_partitions, o.session_ends, o.session_outputs,
       o.topics, o."values", o.keys, o.headers, o.partitions, o.timestamps_ms
FROM unnest(%(batch_ids)s::bigint[], %(session_keys)s::text[]) AS w (batch_id, session_key)
JOIN outbox.session_output o ON o.batch_id = w.batch_id AND o.session_key = w.session_key
WHERE o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s
ORDER BY o.batch_id, o.session_key
