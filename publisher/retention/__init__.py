"""Drops old outputs and prunes the ledger.

- retention.py: the steps of a run. retention_lock.py: commands that begin to need old outputs keep it waiting.
- survey.py, plan.py: who needs which partition; decides which are dropped.
- drop.py: drops one partition. `outbox.drop_partition` (db/schema.sql) checks again, and bounds how long others wait.
- prune.py, delivery_pruning.py, letters.py: rows of ledger and deliveries, letters. `outbox.prune_...` (db/schema.sql) decide which stay.
"""
