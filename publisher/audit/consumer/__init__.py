"""Has a consumer consumed what was delivered? Compares its tables, or its group's offsets, with the topics and the outbox.

- checks.py: the steps. rows.py: reads the consumer's rows.
- compare.py: decides what the consumer lacks or has in excess.
"""
