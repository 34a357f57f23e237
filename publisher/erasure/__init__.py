"""What is kept of session keys is taken out of the outbox: rows, letters, cursors, and the job's cache on this machine.

A row is deleted, not blanked, once its lane has delivered its whole batch and no replay needs it: nothing that goes over rows meets it
again. A row of `outbox.erased` stands for it, so that every count still adds up (docs/decisions/0036-erasure-deletes.md).
"""
