"""What the job reports about itself and the ledger: `spark-job status`, the metrics and health pages."""
