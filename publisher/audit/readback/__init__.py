"""The audit of the output topics: read them back, read the outbox, compare."""
