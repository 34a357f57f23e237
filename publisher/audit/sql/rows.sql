-- A lane's rows as the publisher reads them, with what became of those that were put aside.
SELECT o.batch_id, o.session_key, o.revision, o.session_topic_ids, o.session_partitions, o.session_ends, o.session_outputs,
       o.topics, o."values", o.keys, o.headers, o.partitions, o.timestamps_ms, p.created_at, p.requeued_batch
FROM outbox.session_output o
LEFT JOIN outbox.parked p ON p.session_key = o.session_key AND p.batch_id = o.batch_id
WHERE o.lane = %(lane)s AND o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s
ORDER BY o.batch_id, o.session_key
