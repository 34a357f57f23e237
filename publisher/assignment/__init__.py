"""Decides which process runs which lane.

A lane moves to another process when that process has fewer lanes than its share, when the lane's holder has ended or no longer renews its
lease, when the lane hangs, or when its holder cannot deliver while others can.

- lane_share.py: takes, keeps and gives up this process' lanes; `check` ends the process (exit code 5) when every lane is stopped and
  no other process lives.
- assignor.py: even shares, which lanes to claim and which to give up.
- withdrawal.py: decides when a process that cannot deliver leaves its lanes to others.
- heartbeat.py: renews the leases of this process, except those of lanes that hang.
- membership.py: reads processes and lanes, claims leases and gives them back.
- lane_workers.py: starts and stops the threads of the lanes.
- lane_count.py: the number of lanes, and its changes.
- descriptors.py: makes sure that the process may open enough file descriptors for the lanes.
- publisher/outbox/lease.py, with publisher/sql/leases.sql: decide when a lease has expired, or its holder is dead.
"""
