"""The pure session assembler: pyarrow and numpy, never Spark, Postgres or Kafka.

- settings.py: where the events' fields are, and the limits of one session.
- parsing/: records to columns; malformed records become dead letters.
- events.py, groups.py: new events as columns, and by key.
- assembler.py: the flow. Keys without an anomaly are assembled as whole columns, the others event by event.
- anomalies.py: selects the keys to be judged event by event.
- event_rules.py: judges one key's events: duplicates, timeouts, silence, restarts, `max_events` and `max_bytes`.
- clock.py: the times of a partition's records, by which event_rules.py times a silent session out; how far ahead one record's time counts.
- partition_limits.py: `max_open_bytes`, the limit of a partition.
- state/: the open sessions between two batches.
- result.py, session.py: closed sessions and dead letters; the Session that a transform sees.
- errors.py: errors that stop the assembler.
"""
