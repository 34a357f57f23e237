-- Requests: what a command asks of the running job.

-- name: insert
INSERT INTO outbox.request (run_id, kind, arguments)
VALUES (%(run_id)s, %(kind)s, %(arguments)s)
RETURNING request_id

-- name: pending
SELECT request_id, run_id, kind, arguments
FROM outbox.request
WHERE run_id = ANY (%(run_ids)s::uuid[]) AND answered_at IS NULL
ORDER BY request_id
LIMIT 1

-- name: answer
UPDATE outbox.request
SET answered_at = clock_timestamp(), outcome = %(outcome)s, answer = %(answer)s
WHERE request_id = %(request_id)s AND answered_at IS NULL

-- name: outcome
SELECT outcome, answer AS text
FROM outbox.request
WHERE request_id = %(request_id)s AND answered_at IS NOT NULL

-- name: state
-- The answer and the owner in one snapshot: a start that does what was asked answers in the transaction in which it takes the outbox over.
SELECT r.run_id, r.outcome, r.answer, w.run_id AS owner_run_id,
    EXISTS (
        SELECT FROM pg_stat_activity a
        WHERE a.pid = w.backend_pid AND a.datname = current_database()
            AND (a.backend_start = w.backend_start) IS NOT FALSE
    ) AS owner_lives,
    EXISTS (
        SELECT FROM pg_stat_activity a WHERE a.datname = current_database() AND a.application_name = 'spark-job'
    ) AS job_connected
FROM outbox.request r, outbox.writer w
WHERE r.request_id = %(request_id)s
