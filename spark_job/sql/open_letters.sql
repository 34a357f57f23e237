SELECT reason, count(*) FROM outbox.dead_letter WHERE state = 'open' GROUP BY reason ORDER BY reason
