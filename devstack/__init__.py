"""A real Postgres and a real Apache Kafka as local processes, for people, tests and benchmarks."""
