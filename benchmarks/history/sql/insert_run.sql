INSERT INTO outbox.run (run_id, generation, restored, resumes_at, explanation, attempt, transform_fingerprint, host, pid, system_identifier,
    timeline, started_at, ended_at, ended_because)
SELECT %(run_id)s, %(generation)s, %(restored)s, %(start)s, '', 1, 'history', 'synthetic', 1, s.system_identifier, s.timeline, %(started_at)s,
       %(ended_at)s, CASE WHEN %(ended_at)s::timestamptz IS NOT NULL THEN 'stopped' END
FROM outbox.server_identity() s
