"""Commands that decide what happens to rows: parked rows are requeued or discarded, old rows dropped, rows of session keys erased."""
