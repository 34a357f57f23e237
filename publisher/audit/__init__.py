"""Is anything missing? Compares the outbox with itself, with the archive, with its topics and with consumers."""
