SELECT p.batch_id, p.session_key, p.epoch, p.lane, p.reason, p.detail, p.state, p.requeued_batch, p.created_at, p.state_changed_at
FROM outbox.parked p
WHERE p.batch_id = %(batch_id)s AND p.session_key = %(session_key)s
