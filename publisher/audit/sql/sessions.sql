-- Every session that counts as emitted: not of a row that was put aside, since a requeue copies that.
SELECT o.batch_id, o.session_key, o.revision, o.session_topic_ids, o.session_partitions, o.session_ends
FROM outbox.batch_rows(%(from_batch)s, %(to_batch)s) o
LEFT JOIN outbox.parked p ON p.session_key = o.session_key AND p.batch_id = o.batch_id
WHERE p.batch_id IS NULL
