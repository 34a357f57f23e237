SELECT p.batch_id, p.session_key, p.epoch, p.lane, p.reason, p.detail, p.state, p.requeued_batch, p.created_at
FROM outbox.parked p
WHERE %(all_states)s OR p.state = 'parked'
ORDER BY p.batch_id, p.session_key
LIMIT %(rows)s
