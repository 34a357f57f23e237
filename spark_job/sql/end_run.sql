UPDATE outbox.run
SET ended_at = clock_timestamp(), ended_because = %(because)s
WHERE run_id = %(run_id)s AND ended_at IS NULL
