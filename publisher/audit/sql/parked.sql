-- Rows that were put aside: kept until they are discarded, and requeued as they were.
SELECT p.batch_id, p.session_key, p.state, p.requeued_batch, o.batch_id IS NOT NULL, c.batch_id IS NOT NULL,
       (c.revision, c.session_topic_ids, c.session_partitions, c.session_ends, c.session_outputs, c.topics, c."values", c.keys, c.headers,
        c.partitions, c.timestamps_ms)
       IS NOT DISTINCT FROM
       (o.revision, o.session_topic_ids, o.session_partitions, o.session_ends, o.session_outputs, o.topics, o."values", o.keys, o.headers,
        o.partitions, o.timestamps_ms)
FROM outbox.parked p
LEFT JOIN outbox.session_output o ON o.session_key = p.session_key AND o.batch_id = p.batch_id
LEFT JOIN outbox.session_output c ON c.session_key = p.session_key AND c.batch_id = p.requeued_batch
WHERE p.batch_id >= %(from_batch)s AND p.batch_id <= %(to_batch)s
ORDER BY p.batch_id, p.session_key
