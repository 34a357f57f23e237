"""Which process runs which lane."""
