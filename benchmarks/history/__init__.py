"""A synthetic week of an outbox, by default of ten million sessions, for measuring what is asked of it."""
