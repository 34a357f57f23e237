"""Measurements. Each prints what it does on stderr, and a table on stdout or a file of results."""
