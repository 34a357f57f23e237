"""Follows a session to its records in Kafka and back, for `publisher trace` and the console."""
