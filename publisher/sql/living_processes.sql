-- Its backend is gone: killed, at once. Not renewed: hung, or its machine is gone. After a restart of the server nobody has a backend yet.
SELECT p.process_id::text, p.host, p.pid, p.started_at, p.alive_until
FROM outbox.publisher_process p
WHERE p.ended_at IS NULL
  AND p.alive_until >= now()
  AND (
    p.backend_start < pg_postmaster_start_time()
    OR EXISTS (
        SELECT FROM pg_stat_activity a
        -- The start of another role's backend is hidden; then its pid must do.
        WHERE a.pid = p.backend_pid AND (a.backend_start = p.backend_start) IS NOT FALSE
    )
  )
ORDER BY p.started_at, p.process_id
