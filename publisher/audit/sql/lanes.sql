SELECT r.batch_id, r.session_key, r.lane, r.epoch, r.lanes
FROM outbox.check_stray_row r
WHERE r.batch_id >= %(from_batch)s AND r.batch_id <= %(to_batch)s
ORDER BY r.batch_id, r.session_key
