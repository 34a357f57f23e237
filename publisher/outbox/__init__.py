"""The Postgres side: which outbox it is, leases, parked rows, the record of deliveries, and the LISTEN that wakes lanes (wakeup.py)."""
