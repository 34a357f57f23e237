"""The start: read the outbox's position, compare it with Kafka and the settings, and decide how the job continues."""
