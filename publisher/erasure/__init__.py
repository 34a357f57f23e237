"""Erases session keys: rows, letters and cursors in the outbox, rows of the archive, and the job's cache on this machine.

archived.py erases in the archive; tombstones.py writes records without a value to compacted topics, which is an option.

A row is deleted, not blanked, once its lane has delivered its whole batch and no replay needs it: nothing that reads rows needs a case for
it. A row of `outbox.erased` stands for it, so that every count still adds up (docs/decisions/0036-erasure-deletes.md).
"""
