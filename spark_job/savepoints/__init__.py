"""Named positions, and what a person asks for: a restore, a skip, an export, a fork.

Creating, listing and deleting: ledger/savepoints.py; the lock between two batches: commands/common.py `writer_lock`.
"""
