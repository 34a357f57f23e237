"""Dead letters after they were written: looked at, retried, discarded, resolved by later outputs. `retry` has the steps of a retry."""
