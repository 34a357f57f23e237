INSERT INTO outbox.run (run_id, generation, restored, resumes_at, rebuild_offsets, max_events, explanation, attempt, transform_fingerprint,
    host, pid, system_identifier, timeline)
SELECT %(run_id)s, %(generation)s, %(restored)s, %(resumes_at)s, %(rebuild_offsets)s, %(max_events)s, %(explanation)s, %(attempt)s,
    %(transform_fingerprint)s, %(host)s, %(pid)s, s.system_identifier, s.timeline
FROM outbox.server_identity() s
