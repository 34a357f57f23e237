"""The relay: follows the outbox's ledger and delivers every row to Kafka exactly once (design §5)."""
