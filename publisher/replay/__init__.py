"""Outputs sent once more on request: a filter over delivered batches, a target, and exactly-once sending beside the lanes."""
