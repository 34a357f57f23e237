"""Dead letters after they were written: `spark-job dead-letters`. sink/covered_letters.py resolves those that a later output covers.

- store.py: finds, reads and discards letters.
- refusals.py: which letters are not retried, and why.
- sessions_of_letters.py: the session that a letter's events form, if it is whole.
- retry.py: the steps of a retry; outcome.py is its result.
- cli.py, shown.py: the commands and what they print.
"""
