"""The delivery protocol's values and decisions. Pure.

- history_check.py: whether the histories in Kafka and Postgres agree, and where a lane continues.
- stop_reasons.py, remediation.py: why a lane stops, and what to do about it.
- outgoing.py, records.py, cloud_events.py: which outputs of a row are sent, and as which Kafka records.
- refusals.py: which rows are parked.
- chunk_limits.py, epochs.py: how much a transaction carries; periods with one lane count.
- replay_targets.py: the topics of a replay.
- stored_row.py: a row with all its columns.
"""
