SELECT p.state, count(*) FROM outbox.parked p GROUP BY p.state ORDER BY p.state
