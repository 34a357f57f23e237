"""Dead letters after they were written: show, retry, discard and resolve them. `retry` has the steps of a retry."""
