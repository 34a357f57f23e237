UPDATE outbox.replay
SET lease_until = now() + make_interval(secs => %(lease_s)s)
WHERE replay_id = %(replay_id)s AND lease_token = %(lease_token)s AND lease_holder IS NOT NULL
RETURNING state
