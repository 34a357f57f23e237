"""Conditions that need a person, named as the alerts of Prometheus are, each with its section of the runbook."""
