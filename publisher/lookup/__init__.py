"""From a session to its records in Kafka and back: what `publisher find`, `publisher locate` and the console ask."""
