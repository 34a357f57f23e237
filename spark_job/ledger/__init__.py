"""What the ledger knows, and who may write it.

- ownership.py: takes the outbox over, holds the writer lock.
- owner_heartbeat.py: renews the heartbeat, notices fencing, reads requests.
- position.py, open_partitions.py: the current position, and what is open there.
- generations.py, rules_lineage.py, assembly_rules.py: generations, which rules apply to which offset, and what the rules contain.
- slice_building.py: the slices of the next batch.
- savepoints.py: named positions.
- runs.py: one row for each start.
- requests.py: requests of commands to the running job, and the answers.
- batch_size.py: how many events a batch may have after a failure.
"""
