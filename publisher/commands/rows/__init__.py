"""Commands that decide what happens to rows: parked ones are requeued or discarded, old ones dropped, those of a person erased."""
