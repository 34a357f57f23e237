"""From a session to its records in Kafka and back: what `publisher trace` and the console ask."""
