"""Finds out whether a consumer has consumed what was delivered: compares its tables, or its group's offsets, with the topics and the
outbox.

- checks.py: the steps. rows.py: reads the consumer's rows.
- compare.py: decides which outputs the consumer lacks, and which it has in excess.
"""
