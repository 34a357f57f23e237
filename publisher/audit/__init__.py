"""Finds out whether anything is missing. Compares the outbox with itself, with the archive, with its topics and with consumers.

- audit.py: the whole audit. scope.py: what the audit covers. findings.py: the checks and the report.
- ledger.py, deliveries.py, parked.py, letters.py: compare the outbox with itself, in SQL alone.
- erased.py: reads the erased sessions, which are no findings.
- archived.py: compares with the archive. readback/: with the topics. consumer/: with consumers.
"""
