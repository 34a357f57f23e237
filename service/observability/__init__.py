"""Logs, metrics, health and traces of both services: one HTTP endpoint, and measurements whose failure ends no work.

- logs.py: structured logs.
- endpoint.py: `/metrics`, `/healthz` and `/readyz`. http_server.py, connection_limit.py: its server, and a bound on the connections.
- verdict.py: an answer about health. loops.py: whether the loops of a process turn, for `/healthz`.
- gauges.py, bulk_histogram.py: gauges computed at each scrape; a histogram that takes many observations at once.
- best_effort.py: measurements whose failure is only logged.
- tracing.py, tracing_ids.py: spans for OpenTelemetry, and their ids.
"""
