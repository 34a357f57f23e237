"""The audit of the output topics: reads them back, reads the outbox, and compares both.

- readback.py: the steps. state.py: the progress, from which the next audit continues after a kill.
- topics.py: which topics are read, and between which offsets.
- received.py, expected.py: read the topics' records and the outbox's outputs. digest.py, spill.py: their form, and the buckets on disk.
- compare.py: decides what is lost, duplicated, altered or out of order. unexpected.py: decides which records are unexpected.
- explain.py, rows_to_send_again.py: describe the findings; build the command that sends lost outputs again.
"""
