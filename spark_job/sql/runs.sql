-- Runs: each attempt of the job.

-- name: insert
INSERT INTO outbox.run (run_id, generation, restored, resumes_at, rebuild_offsets, max_events, explanation, attempt, transform_fingerprint,
    host, pid, system_identifier, timeline)
SELECT %(run_id)s, %(generation)s, %(restored)s, %(resumes_at)s, %(rebuild_offsets)s, %(max_events)s, %(explanation)s, %(attempt)s,
    %(transform_fingerprint)s, %(host)s, %(pid)s, s.system_identifier, s.timeline
FROM outbox.server_identity() s

-- name: newest
SELECT r.run_id, r.generation, r.restored, r.resumes_at, r.rebuild_offsets, r.max_events, r.explanation, r.attempt, r.host, r.pid, r.started_at,
    r.ended_at, r.ended_because, r.system_identifier, r.timeline, s.system_identifier AS server_system_identifier, s.timeline AS server_timeline,
    CASE WHEN r.attempt > 1 THEN
        (SELECT b.ended_because FROM outbox.run b WHERE b.number < r.number ORDER BY b.number DESC LIMIT 1)
    END AS failed_before
FROM outbox.run r, outbox.server_identity() s
ORDER BY r.number DESC
LIMIT 1

-- name: sizes
SELECT max_events, ended_because, resumes_at, attempt
FROM outbox.run
ORDER BY number DESC
LIMIT %(limit)s

-- name: is_known
SELECT FROM outbox.run WHERE run_id = %(run_id)s

-- name: end
UPDATE outbox.run
SET ended_at = clock_timestamp(), ended_because = %(because)s
WHERE run_id = %(run_id)s AND ended_at IS NULL
