UPDATE outbox.replay
SET lease_holder = NULL, lease_until = NULL, lease_backend_pid = NULL, lease_backend_start = NULL, reason = coalesce(%(reason)s, reason)
WHERE replay_id = %(replay_id)s AND lease_token = %(lease_token)s
