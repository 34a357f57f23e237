"""From one attempt of the job to the next inside the process.

- attempts.py: whether a failed attempt, and with it its batch, is tried again, or which error ends the process.
- restart_strategy.py: when, and how often (`[restart]`).
- standby.py: a second job that waits for its turn.
"""
