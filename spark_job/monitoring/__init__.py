"""What the job records while it works. spark_job/status/ serves these values, together with values from Postgres and Kafka.

- health.py: the state of the process, over all its attempts.
- readiness.py: judges that state for `/readyz`.
- metrics.py: the counters of the process.
"""
