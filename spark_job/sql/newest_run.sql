SELECT r.run_id, r.generation, r.restored, r.resumes_at, r.rebuild_offsets, r.max_events, r.explanation, r.attempt, r.host, r.pid, r.started_at,
    r.ended_at, r.ended_because, r.system_identifier, r.timeline, s.system_identifier AS server_system_identifier, s.timeline AS server_timeline
FROM outbox.run r, outbox.server_identity() s
ORDER BY r.number DESC
LIMIT 1
