-- Rows whose lane their epoch does not have: no publisher would ever send them.
SELECT o.batch_id, o.session_key, o.lane, e.epoch, e.lanes
FROM outbox.session_output o
LEFT JOIN LATERAL (
    SELECT n.epoch, n.lanes FROM outbox.lane_epoch n WHERE n.from_batch <= o.batch_id ORDER BY n.from_batch DESC LIMIT 1
) e ON true
WHERE o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s AND (e.lanes IS NULL OR o.lane >= e.lanes)
ORDER BY o.batch_id, o.session_key
