"""Has a consumer consumed what was delivered? Its tables, or its group's offsets, against the topics and the outbox."""
