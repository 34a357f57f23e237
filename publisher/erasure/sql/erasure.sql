-- The statements of `publisher erase`. The functions run with the owner's rights, and take the locks that they need.

-- name: alone
SELECT pg_try_advisory_lock(hashtextextended('outbox.erasure', 0))

-- name: begin
SELECT outbox.begin_erasure(%(session_keys)s)

-- name: hold
SELECT outbox.hold_for_erasure()

-- name: key_hash
SELECT encode(outbox.key_hash(%(session_key)s), 'hex')

-- name: rows
SELECT r.batch_id, r.sessions, r.topics, r.keys, r.partitions, r.is_delivered, r.replays
FROM outbox.rows_of_key(%(session_key)s, %(from_batch)s, %(to_batch)s) r

-- name: erase_rows
SELECT outbox.erase_rows(%(session_key)s, %(batch_ids)s)

-- name: letters
SELECT l.letters, l.without_key FROM outbox.letters_of_key(%(session_key)s) l

-- name: erase_letters
SELECT outbox.erase_letters_of_key(%(session_key)s, %(most)s)

-- name: erase_letter_at
SELECT l.erased, l.still_open FROM outbox.erase_letter_at(%(topic)s, %(partition)s, %(offset)s) l

-- name: erase_positions
SELECT p.changed, p.kept, p.last_id FROM outbox.erase_positions(%(session_key)s, %(relation)s, %(after_id)s, %(most)s) p

-- name: erase_traces
SELECT t.changed, t.kept FROM outbox.erase_traces(%(session_key)s, %(batch)s, %(generation)s, %(savepoint)s) t

-- name: partitions_of_erased
SELECT p.name::text FROM outbox.partitions_of_erased(%(session_keys)s) AS p (name)

-- name: erase_statistics
SELECT outbox.erase_statistics(%(partition)s)

-- name: archive_leases
-- A replay that sends rows of the archive first gets or extends a lease, so its row here differs afterwards.
SELECT l.replay_id, l.lease_token, l.lease_until FROM outbox.archive_leases(%(partition)s) l

-- name: open_input
SELECT o.topic_id, o.partition, o.end_offset, o.open_from FROM outbox.open_input() o ORDER BY o.topic_id, o.partition
