SELECT t.topic, t.decided_at FROM outbox.parked_topic t WHERE t.ended_at IS NULL ORDER BY t.topic
