"""What the job says of itself and of the ledger: `spark-job status`, the metrics and health pages."""
