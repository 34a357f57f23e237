"""The start: read the outbox's position, compare it with Kafka and the settings, and decide how the job continues.

- start.py: collects the facts, in one transaction that takes the outbox over.
- findings.py: decides, from the facts alone: continue, stop, or open a generation; refuses a savepoint whose events Kafka has deleted;
  decides where added partitions begin.
- outbox_behind.py: the finding that the database was restored to an older state, by Kafka's progress records.
- savepoint_restore.py: where a requested restore begins, at a savepoint or at the greatest position of all time; what
  `spark-job savepoint list` says of each savepoint, by the same findings.
- starting_offsets.py: where the first generation begins.
"""
