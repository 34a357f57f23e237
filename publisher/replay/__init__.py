"""Sends delivered outputs once more on request, exactly once: filters select them, a target receives them, beside the lanes.

- starting.py: plans and creates a replay.
- selection.py: which rows its filters select, and how it never overtakes live publishing.
- target.py: the cluster that it sends to.
- runner.py: runs it, and opens it again after a failure. delivery.py: the steps of the protocol (publisher/delivery).
- reader.py, archived.py: the next rows, from Postgres and from the archive.
- refused_rows.py: skips rows that Kafka refuses, or stops the replay.
- progress_record.py, store.py: its progress in Kafka; its row and lease in Postgres.
- pace.py, printing.py: its rate; what the commands print.

`publisher erase` deletes a row only while no replay that needs it holds a lease or has its cursor at it (erasure/erase.py,
`outbox.rows_of_key`); a replay confirms its lease before each Kafka commit (delivery.py).
"""
