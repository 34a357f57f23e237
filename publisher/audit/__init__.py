"""Is anything missing? Compares the outbox with itself, with the archive, with its topics and with consumers.

- audit.py: the whole audit. scope.py: what it covers. findings.py: its checks and report.
- ledger.py, deliveries.py, parked.py, letters.py: the outbox with itself, in SQL alone.
- erased.py: erased sessions, which are no findings.
- archived.py: the archive. readback/: the topics. consumer/: consumers.
"""
