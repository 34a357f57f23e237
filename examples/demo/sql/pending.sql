-- Output events that are in the outbox and that no lane has recorded as sent.
SELECT coalesce(sum(cardinality(o.topics)), 0)::bigint
FROM outbox.session_output o
CROSS JOIN LATERAL (SELECT epoch FROM outbox.lane_epoch WHERE from_batch <= o.batch_id ORDER BY from_batch DESC LIMIT 1) e
LEFT JOIN outbox.lane l ON l.epoch = e.epoch AND l.lane = o.lane
WHERE l.lane IS NULL
   OR l.cursor_batch < o.batch_id
   OR (l.cursor_batch = o.batch_id AND l.cursor_key < o.session_key)
