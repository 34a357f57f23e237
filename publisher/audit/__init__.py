"""Is anything missing? The outbox against itself, and against the topics that it delivers to."""
