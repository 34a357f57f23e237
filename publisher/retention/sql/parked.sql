SELECT p.batch_id, count(*) FROM outbox.parked p WHERE p.state = 'parked' GROUP BY p.batch_id ORDER BY p.batch_id
