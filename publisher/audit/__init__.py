"""Is anything missing? The outbox against itself, and against the topics that it delivers to."""

SQL = "publisher.audit"
"""Package of the audit's statements, which the role outbox_auditor may run."""
