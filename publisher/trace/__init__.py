"""Follows a session to its records in Kafka and back, for `publisher trace` and the console.

- identify.py: decides what a person's text names.
- input_positions.py: finds sessions and dead letters at a position in the input.
- outputs.py, records.py, consumers.py: find the outputs of a session in the outbox, their records in Kafka, and their state at consumers.
- printing.py: prints the command's result.
"""
