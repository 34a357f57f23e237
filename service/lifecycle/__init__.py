"""How a process begins, waits, survives failures and ends.

- process.py: the name of this process for people.
- allocators.py: how it manages memory.
- shutdown.py: SIGTERM and SIGINT.
- threads.py: starts a failed thread again.
- backoff.py: the pause before the next attempt.
- tracebacks.py: releases what a failure holds.
- fault_points.py: where a test makes a process die, fail or hang.
"""
