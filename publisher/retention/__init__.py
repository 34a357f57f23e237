"""Drops old outputs and prunes the ledger.

- retention.py: the steps of a run. retention_lock.py: commands that begin to need old outputs keep retention waiting.
- survey.py, plan.py: read who needs which partition, and decide which partitions are dropped.
- drop.py: drops one partition. `outbox.drop_partition` (db/schema.sql) checks again, and limits how long other transactions wait.
- prune.py, delivery_pruning.py, letters.py: delete rows of the ledger and the logs, deliveries, and letters. The functions in Postgres
  (`outbox.prune_...`, db/schema.sql) decide which rows stay.
"""
