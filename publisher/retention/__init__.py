"""Retention, a run in keeper.py: survey.py looks, plan.py decides, drop.py drops table partitions, prune.py the ledger's old rows."""
