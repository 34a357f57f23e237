"""Sends delivered outputs once more on request, exactly once: filters select them, and a target receives them while the lanes deliver.

- starting.py: plans and creates a replay.
- selection.py: which rows the filters select, and why a replay never overtakes live publishing.
- target.py: the cluster that the replay sends to.
- runner.py: runs a replay, and opens it again after a failure. delivery.py: the steps of the protocol (publisher/delivery).
- reader.py, archived.py: read the next rows from Postgres or from the archive.
- refused_rows.py: skips rows that Kafka refuses, or stops the replay.
- progress_record.py, store.py: the progress in Kafka; the row and the lease in Postgres.
- pace.py, printing.py: the rate; what the commands print.

`publisher erase` deletes a row only if no replay that needs the row holds a lease or has its cursor at it (erasure/erase.py,
`outbox.rows_of_key`). A replay confirms its lease before each Kafka commit (delivery.py).
"""
