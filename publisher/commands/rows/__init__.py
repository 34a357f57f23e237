"""Commands that decide what happens to rows: parked ones are sent or put away, old ones dropped, those of a person erased."""
