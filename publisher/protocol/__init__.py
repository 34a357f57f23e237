"""What the delivery protocol speaks of: cursors, progress records, a row as Kafka records, its history, reasons to stop. Pure."""
