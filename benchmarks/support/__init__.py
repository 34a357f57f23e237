"""What several benchmarks use: servers, an outbox with rows, the tables on their page."""
