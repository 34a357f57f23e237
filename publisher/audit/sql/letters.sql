SELECT d.reason, count(*) FROM outbox.dead_letter d WHERE d.state = 'open' GROUP BY d.reason ORDER BY d.reason
