SELECT run_id, host, pid, backend_pid, backend_start, heartbeat_at, started_at
FROM outbox.writer
FOR UPDATE
