-- What `publisher erase` asks and does. The functions have the owner's rights, and the locks that they need.

-- name: alone
SELECT pg_try_advisory_lock(hashtextextended('outbox.erasure', 0))

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
SELECT l.dead_letter_id, l.is_named FROM outbox.letters_of_key(%(session_key)s, %(letter_ids)s) l

-- name: erase_letters
SELECT outbox.erase_letters(%(letter_ids)s)

-- name: erase_traces
SELECT t.changed, t.kept FROM outbox.erase_traces(%(session_key)s) t

-- name: position
-- How far the job has read, and what is open there.
SELECT coalesce(b.end_offsets, g.start_offsets), coalesce(b.open_state, g.open_state)
FROM (SELECT n.* FROM outbox.generation n ORDER BY n.generation DESC LIMIT 1) g
LEFT JOIN LATERAL (
    SELECT n.end_offsets, n.open_state FROM outbox.batch n
    WHERE n.generation = g.generation AND n.kind = 'stream' ORDER BY n.batch_id DESC LIMIT 1
) b ON true
