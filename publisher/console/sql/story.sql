-- The whole story of one session key, from the indexes on the key. Queries of outputs read a few partitions at a time.

-- name: sessions
SELECT s.*, extract(epoch FROM s.delivered_at - s.committed_at)::double precision AS delivered_s,
       extract(epoch FROM s.delivered_at - s.ended_at)::double precision AS ended_s
FROM outbox.audit_session s
WHERE s.session_key = %(key)s AND s.batch_id >= %(from_batch)s AND s.batch_id <= %(to_batch)s
ORDER BY s.batch_id DESC, s.end_offset DESC
LIMIT %(rows)s

-- name: history
SELECT h.at, h.what, h.detail, h.batch_id FROM outbox.audit_history h
WHERE h.session_key = %(key)s AND h.batch_id >= %(from_batch)s AND h.batch_id <= %(to_batch)s
ORDER BY h.at DESC LIMIT %(rows)s

-- name: values
-- The contents of the outputs of some batches, in order. No more of a key or a value than a page shows or decodes.
SELECT e.outbox_id, e.revision, e.batch_id, substring(e.key FROM 1 FOR %(bytes)s) AS key, octet_length(e.key) AS key_bytes,
       substring(e.value FROM 1 FOR %(bytes)s) AS value, octet_length(e.value) AS value_bytes, e.headers
FROM outbox.event e
WHERE e.session_key = %(key)s AND e.batch_id = ANY (%(batch_ids)s) AND e.batch_id >= %(from_batch)s AND e.batch_id <= %(to_batch)s
ORDER BY e.batch_id, e.session_end_offset, split_part(e.outbox_id, '/', 4)::integer
LIMIT %(rows)s

-- name: letters
SELECT d.dead_letter_id, d.reason, d.state, d.detail, d.topic, d.partition, d.first_offset, d.last_offset, d.event_count, d.batch_id, d.resolved_batch,
       d.created_at
FROM outbox.dead_letter d
WHERE d.session_key = %(key)s
ORDER BY d.dead_letter_id DESC
LIMIT %(rows)s

-- name: parked
SELECT p.batch_id, p.reason, p.detail, p.state, p.requeued_batch, p.created_at
FROM outbox.parked p
WHERE p.session_key = %(key)s
ORDER BY p.batch_id DESC
LIMIT %(rows)s

-- name: replays
SELECT r.replay_id, r.replay_uuid, r.batch_id, r.began_at, r.ended_at, r.output_events, r.target_topic, r.certain
FROM outbox.audit_replayed r
WHERE r.session_key = %(key)s AND r.batch_id >= %(from_batch)s AND r.batch_id <= %(to_batch)s
ORDER BY r.replay_id DESC
LIMIT %(rows)s
