"""Commands of `spark-job` that ask or change the outbox; the job itself need not run for them."""
