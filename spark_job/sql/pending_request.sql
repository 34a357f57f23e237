SELECT request_id, run_id, kind, arguments
FROM outbox.request
WHERE run_id = ANY (%(run_ids)s::uuid[]) AND answered_at IS NULL
ORDER BY request_id
LIMIT 1
