-- batch_id twice: the row comparison walks the index, the plain one prunes partitions.
SELECT o.batch_id, o.session_key, o.revision, o.session_topic_ids, o.session_partitions, o.session_ends, o.session_outputs,
       o.topics, o."values", o.keys, o.headers, o.partitions, o.timestamps_ms
FROM outbox.session_output o
WHERE o.lane = %(lane)s
  AND o.batch_id >= %(from_batch)s
  AND o.batch_id <= %(to_batch)s
  AND (o.batch_id, o.session_key) > (%(from_batch)s, %(from_key)s)
ORDER BY o.batch_id, o.session_key
LIMIT %(rows)s
