"""Measurements. Each prints what it does on stderr and one JSON line last on stdout."""
