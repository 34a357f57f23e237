"""Debezium's outbox event router in Kafka Connect, doing the publisher's work on its own outbox table."""
