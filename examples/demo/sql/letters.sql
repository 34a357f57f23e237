SELECT reason, topic, partition, first_offset FROM outbox.dead_letter
