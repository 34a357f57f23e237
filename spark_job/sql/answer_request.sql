UPDATE outbox.request
SET answered_at = clock_timestamp(), outcome = %(outcome)s, answer = %(answer)s
WHERE request_id = %(request_id)s AND answered_at IS NULL
