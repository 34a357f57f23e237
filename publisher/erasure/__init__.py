"""Erases session keys: rows, letters and cursors in the outbox, rows of the archive, and the job's cache on this machine.

- erase.py: the rounds, and what is left. open_sessions.py: whether open sessions may have a key.
- letters.py: dead letters that are named by their position.
- archive_erasure.py: the archive. cache.py: the cache.
- tombstones.py: on request, records without a value in compacted topics.

A row is deleted, not blanked, once its lane has delivered its whole batch and no replay needs it: nothing that reads rows needs a case for
it. `outbox.rows_of_key` (db/schema.sql) decides which rows may go; `outbox.erase_rows` checks again. A replay needs the rows ahead of it
while its lease lives: a lease outlasts every commit requested under it (replay/delivery.py `_acquire`). A row of `outbox.erased` stands for
the deleted row, so that every count still adds up (docs/decisions/0036-erasure-deletes.md).
"""
