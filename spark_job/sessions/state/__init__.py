"""What is open between two batches: the table of open sessions, and the chunks of their events."""
