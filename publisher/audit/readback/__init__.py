"""The audit of the output topics: read them back, read the outbox, compare.

- readback.py: the steps. state.py: their progress, which a killed audit continues.
- topics.py: which topics are read, and between which offsets.
- received.py, expected.py: records of the topics, outputs of the outbox. digest.py, spill.py: their form, and the buckets on disk.
- compare.py: decides what is lost, duplicated, altered or out of order. unexpected.py: which records are unexpected.
- explain.py, lost_rows.py: findings in words; the command that sends lost outputs again.
"""
