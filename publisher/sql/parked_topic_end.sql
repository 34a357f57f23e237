UPDATE outbox.parked_topic SET ended_at = now() WHERE topic = %(topic)s AND ended_at IS NULL
