"""Reads and serves the state of the lanes and the process.

- publisher_status.py: `publisher status`, from Postgres alone. backlog.py: the rows that each lane has not delivered.
- outbox_metrics.py: the metrics that come from Postgres.
- endpoint.py: the HTTP endpoint of `publisher run`.
"""
