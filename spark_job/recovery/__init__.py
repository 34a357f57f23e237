"""The start: where the outbox is, what Kafka and the settings say of that, and how the job continues."""
