"""Has a consumer consumed what was delivered? Compares its tables, or its group's offsets, with the topics and the outbox."""
