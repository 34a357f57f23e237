"""The pure session assembler: pyarrow and numpy, never Spark, Postgres or Kafka. See `assembler` for the flow."""
