SELECT request_id, run_id, kind, arguments
FROM outbox.request
WHERE run_id = %(run_id)s AND answered_at IS NULL
ORDER BY request_id
LIMIT 1
