"""What the delivery protocol speaks of: cursors, progress records, a row as Kafka records, where a lane continues, why it stops. Pure."""
