SELECT o.session_key FROM outbox.session_output o
WHERE o.lane = %(lane)s AND o.batch_id = %(batch_id)s
ORDER BY o.session_key
