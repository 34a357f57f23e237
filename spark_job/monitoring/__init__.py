"""What the job records while it works. spark_job/status/ reads it, and serves it with what Postgres and Kafka have.

- health.py: the state of the process, over all its attempts.
- readiness.py: judges that state for `/readyz`.
- metrics.py: the counters of the process.
"""
