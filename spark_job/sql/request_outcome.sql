SELECT outcome, answer AS text
FROM outbox.request
WHERE request_id = %(request_id)s AND answered_at IS NOT NULL
