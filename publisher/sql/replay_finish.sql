UPDATE outbox.replay
SET state = 'done', reason = %(reason)s, state_changed_at = now()
WHERE replay_id = %(replay_id)s AND lease_token = %(lease_token)s AND state = 'running'
