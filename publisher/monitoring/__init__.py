"""What a running publisher records about itself, for operators.

- health.py: the state of its lanes and threads, and the answer of `/healthz`.
- readiness.py: judges that state for `/readyz`.
- metrics.py, latency.py: the counters; how late outputs are.
- delivery_log.py: the log lines about deliveries.
"""
