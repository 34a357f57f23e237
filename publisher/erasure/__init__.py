"""Erases session keys: rows, letters and cursors in the outbox, rows of the archive, and the job's cache on this machine.

- erase.py: the rounds of an erasure, and what remains to be erased. open_sessions.py: whether open sessions may have a key.
- letters.py: parses positions that name dead letters.
- archive_erasure.py: erases from the archive. cache.py: removes the cache.
- tombstones.py: on request, writes records without a value to compacted topics.

A row is deleted, not blanked, once its lane has delivered its whole batch and no replay needs it, so no reader has to handle blanked rows.
`outbox.rows_of_key` (db/schema.sql) decides which rows may go; `outbox.erase_rows` checks again. A replay needs the rows ahead of it
while its lease lives: a lease outlasts every commit requested under it (replay/delivery.py `_acquire`). For each deleted row
`outbox.erased` gets a row, so that every count still adds up, and `outbox.erased_key` keeps the key out of reissues
(docs/decisions/0036-erasure-deletes.md).
"""
