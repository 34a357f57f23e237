"""Named positions, and what a person asks for: a restore, a skip, an export, a fork."""
