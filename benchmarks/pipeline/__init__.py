"""The whole path, measured: Kafka -> Spark -> Postgres -> publisher -> Kafka, this checkout's and another one's in turn."""
