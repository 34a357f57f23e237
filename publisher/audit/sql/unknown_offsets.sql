SELECT count(*) FROM outbox.delivery d WHERE d.to_batch >= %(from_batch)s AND d.events > 0 AND d.kafka_offsets IS NULL
