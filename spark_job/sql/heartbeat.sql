UPDATE outbox.writer SET heartbeat_at = clock_timestamp() WHERE run_id = %(run_id)s
