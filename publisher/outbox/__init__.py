"""The Postgres side: which outbox it is, leases, positions in it and the record of deliveries."""
