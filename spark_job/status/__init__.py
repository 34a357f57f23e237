"""What the job reports about itself and the ledger: `spark-job status`, the metrics and health pages.

- job_status.py: `spark-job status`, from Postgres alone.
- endpoint.py: the HTTP endpoint of `spark-job run`.
- outbox_metrics.py, input_lag.py: the metrics that are read from Postgres and from Kafka.
"""
