-- What the example shows of a session.

-- name: events
SELECT batch_id, outbox_id, revision, topic, value_json::text AS value, delivery_state
FROM outbox.event
WHERE session_key = %(session_key)s
ORDER BY batch_id, session_end_offset, substring(outbox_id FROM '[0-9]+$')::integer
