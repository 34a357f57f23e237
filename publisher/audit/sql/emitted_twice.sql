-- Sessions emitted more than once for a revision, in one statement: the two may be any number of batches apart.
SELECT t.session_key, t.topic_id, t.partition, t.end_offset, t.times, t.first_batch, t.last_batch
FROM outbox.check_emitted_twice(%(from_batch)s, %(to_batch)s) t
ORDER BY t.last_batch, t.session_key
