-- The audit's queries on the rows, including parked ones.

-- name: of_lane
-- A lane's rows as the publisher reads them, with the state of the parked ones.
SELECT o.batch_id, o.session_key, o.revision, o.session_topic_ids, o.session_partitions, o.session_ends, o.session_outputs,
       o.topics, o."values", o.keys, o.headers, o.partitions, o.timestamps_ms, p.after_seq, p.requeued_batch
FROM outbox.session_output o
LEFT JOIN outbox.parked p ON p.session_key = o.session_key AND p.batch_id = o.batch_id
WHERE o.lane = %(lane)s AND o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s
ORDER BY o.batch_id, o.session_key

-- name: keys
SELECT o.session_key FROM outbox.session_output o
WHERE o.lane = %(lane)s AND o.batch_id = %(batch_id)s
ORDER BY o.session_key

-- name: count
SELECT count(*)
FROM outbox.batch_rows(%(from_batch)s, %(to_batch)s) o
LEFT JOIN outbox.parked p ON p.session_key = o.session_key AND p.batch_id = o.batch_id
WHERE p.batch_id IS NULL

-- name: missing_partitions
-- Missing partitions that should hold undelivered rows.
SELECT k.partition, k.from_batch, k.to_batch, k.sessions
FROM outbox.check_rows_kept k
ORDER BY k.from_batch

-- name: stray
SELECT r.batch_id, r.session_key, r.lane, r.epoch, r.lanes
FROM outbox.check_stray_rows(%(from_batch)s, %(to_batch)s) r
ORDER BY r.batch_id, r.session_key

-- name: emitted_twice
-- Sessions emitted more than once for a revision, in one statement: the two rows may be any number of batches apart.
SELECT t.session_key, t.topic_id, t.partition, t.end_offset, t.times, t.first_batch, t.last_batch
FROM outbox.check_emitted_twice(%(from_batch)s, %(to_batch)s) t
ORDER BY t.last_batch, t.session_key

-- name: parked
-- Parked rows, and the damage to rows that were parked once.
SELECT p.batch_id, p.session_key, p.state = 'parked', p.requeued_batch, c.detail
FROM outbox.parked p
LEFT JOIN outbox.check_parked_rows(%(from_batch)s, %(to_batch)s) c ON c.session_key = p.session_key AND c.batch_id = p.batch_id
WHERE p.batch_id >= %(from_batch)s AND p.batch_id <= %(to_batch)s AND (p.state = 'parked' OR c.detail IS NOT NULL)
ORDER BY p.batch_id, p.session_key

-- name: may_read_letters
SELECT has_table_privilege('outbox.dead_letter', 'SELECT')

-- name: removed_letters
SELECT r.reason, r.state, r.letters, r.newest_at FROM outbox.removed_letters r ORDER BY r.reason, r.state

-- name: letters
SELECT d.reason, count(*) FROM outbox.dead_letter d WHERE d.state = 'open' GROUP BY d.reason ORDER BY d.reason
