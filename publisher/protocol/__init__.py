"""The delivery protocol's values and decisions: limits, a row as Kafka records, where a lane continues, why it stops. Pure."""
