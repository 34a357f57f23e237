"""Run the job's attempts, one after the other, in one process.

A batch that an earlier attempt committed is never computed again: each start reads the ledger's end (`recovery/start.py`), and Spark begins
there.

- attempts.py: decides whether another attempt follows a failed one, or which error ends the process.
- restart_delay.py: when the next attempt begins, and how often that happens (`[restart]`).
- standby.py: a second job that waits for its turn.
"""
