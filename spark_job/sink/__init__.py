"""One Postgres transaction for each batch.

- batch_result.py: reads what the tasks of a batch returned, and forms the rows of session_output.
- computed_batch.py: adds the position after the batch.
- backpressure.py: waits before a commit while too many outputs are undelivered.
- commit.py: the transaction, in numbered steps. commit_thread.py runs it beside the next batch.
- ledger_rows.py, copy_rows.py, covered_letters.py, erased.py: the parts of the transaction: the ledger, rows and dead letters, letters that
  an output resolves, sessions that were erased.
"""
