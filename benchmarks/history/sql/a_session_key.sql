SELECT session_key FROM outbox.session_output
WHERE batch_id = (SELECT max(batch_id) / 2 FROM outbox.batch)
ORDER BY session_key LIMIT 1
