"""Follows a session to its records in Kafka and back, for `publisher trace` and the console.

- identify.py: what the text names that a person gave.
- positions.py: sessions and dead letters at a position in the input.
- outputs.py, records.py, consumers.py: the outputs of a session in the outbox, their records in Kafka, their state at consumers.
- printing.py: what the command prints.
"""
