"""Reads and serves the state of lanes and process.

- publisher_status.py: `publisher status`, from Postgres alone. backlog.py: what each lane has not delivered.
- outbox_metrics.py: the metrics that are read from Postgres.
- endpoint.py: the HTTP endpoint of `publisher run`.
"""
