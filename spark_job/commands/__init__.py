"""Commands of `spark-job` that read or change the outbox; most need no running job."""
