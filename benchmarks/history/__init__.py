"""A synthetic week of an outbox: ten million sessions as two services leave them behind, for measuring what is asked of it."""
