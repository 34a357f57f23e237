"""`spark-job try` and `spark-job diff`: run the current transform on sessions of the input. Nothing is written anywhere.

- cli.py, diff.py: the two commands.
- newest.py: reads the newest records of the input.
- outbox.py: reads the sessions' outputs in the outbox.
- compared.py, shown.py: compare these with the current outputs, and show the result.
"""
