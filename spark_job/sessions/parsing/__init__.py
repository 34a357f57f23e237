"""From Kafka's records to columns: the fields of every event, and which records cannot be read."""
