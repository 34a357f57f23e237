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
