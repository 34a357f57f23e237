UPDATE outbox.writer
SET held_back_since = CASE WHEN %(because)s::text IS NOT NULL THEN clock_timestamp() END, held_back_because = %(because)s
WHERE run_id = %(run_id)s
