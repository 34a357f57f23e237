"""Restores, forks and exports of savepoints. ledger/savepoints.py creates, lists and deletes them.

- restore_and_fork.py: opens a generation while no job runs. recovery/savepoint_restore.py decides where it begins, also for a running job.
- exported.py: the file of a savepoint, from which a fork begins.
- preview.py: what a restore would do and did.

The lock that a command holds between two batches: commands/common.py, `writer_lock`.
"""
