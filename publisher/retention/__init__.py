"""Retention: old table partitions of delivered outputs are dropped, what the ledger no longer needs is pruned."""
