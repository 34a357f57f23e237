"""Drops old outputs, a run in keeper.py: survey.py reads the state, plan.py decides, drop.py drops partitions, prune.py ledger rows."""
