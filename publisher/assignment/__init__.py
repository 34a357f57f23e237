"""Decides which process runs which lane.

- assignor.py: even shares, which lanes to claim and which to give up.
- withdrawal.py: a process that cannot deliver while others can.
- heartbeat.py: a lane that hangs.
- publisher/outbox/lease.py, with publisher/sql/leases.sql: when a lease has expired, or its holder is dead.
"""
