"""The relay: follows the outbox's ledger and delivers every row to Kafka exactly once (docs/architecture.md)."""
