"""Restores, forks and exports of savepoints. ledger/savepoints.py creates, lists and deletes them.

- without_a_job.py: `restore` and `fork` while no job runs. recovery/savepoint_restore.py decides where a restore begins, also for a
  running job.
- exported.py: the file of a savepoint, from which a fork begins.
- preview.py: shows what a restore would do, and reports what it did.

commands/common.py (`writer_lock`) takes the lock under which a command works between two batches.
"""
