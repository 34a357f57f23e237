"""Moves lanes on request, when the histories of Kafka and Postgres differ."""
