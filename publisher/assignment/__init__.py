"""Decides which process runs which lane.

A lane moves to another process if that one has fewer lanes than its share, if the lane's holder has ended or no longer renews its lease, if
the lane hangs, or if its holder cannot deliver while others can.

- lane_share.py: this process' share: takes, keeps and gives up lanes; `check` ends the process (exit code 5) when every lane is stopped and
  no other process lives.
- assignor.py: even shares, which lanes to claim and which to give up.
- withdrawal.py: a process that cannot deliver while others can.
- heartbeat.py: renews leases, but not of a lane that hangs.
- membership.py: reads processes and lanes, claims leases and gives them back.
- lane_workers.py: starts and stops the threads of the lanes.
- lane_count.py: the number of lanes, and its changes.
- descriptors.py: enough file descriptors for the lanes.
- publisher/outbox/lease.py, with publisher/sql/leases.sql: when a lease has expired, or its holder is dead.
"""
