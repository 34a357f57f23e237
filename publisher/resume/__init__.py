"""Lanes moved on request, when Kafka and Postgres no longer tell one history."""
