"""Retention, a run in keeper.py: survey.py reads the state, plan.py decides, drop.py drops table partitions, prune.py old ledger rows."""
