-- Whatever the state: a replay that was paused meanwhile has sent this all the same.
UPDATE outbox.replay
SET seq = %(seq)s,
    cursor_batch = %(to_batch)s,
    cursor_key = %(to_key)s,
    rows_sent = %(rows_sent)s,
    events_sent = %(events_sent)s,
    rows_skipped = %(rows_skipped)s,
    measured_rate = coalesce(%(measured_rate)s, measured_rate),
    lease_until = now() + make_interval(secs => %(lease_s)s)
WHERE replay_id = %(replay_id)s AND lease_token = %(lease_token)s AND lease_holder IS NOT NULL AND seq = %(seq)s - 1
RETURNING state
