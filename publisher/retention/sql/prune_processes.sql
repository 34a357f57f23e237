DELETE FROM outbox.publisher_process d
WHERE d.process_id IN (
    SELECT p.process_id FROM outbox.publisher_process p
    WHERE coalesce(p.ended_at, p.alive_until) < now() - make_interval(secs => %(keep_s)s)
    LIMIT %(rows)s)
