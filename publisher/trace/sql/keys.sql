-- Whether the outbox knows a session key, from its indexes.

-- name: has_row
SELECT EXISTS (SELECT FROM outbox.session_output o
               WHERE o.session_key = %(key)s AND o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s)

-- name: has_letter
SELECT EXISTS (SELECT FROM outbox.dead_letter d WHERE d.session_key = %(key)s)
