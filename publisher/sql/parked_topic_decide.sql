INSERT INTO outbox.parked_topic AS t (topic)
VALUES (%(topic)s)
ON CONFLICT ON CONSTRAINT parked_topic_pkey DO UPDATE SET decided_at = now(), ended_at = NULL
WHERE t.ended_at IS NOT NULL
