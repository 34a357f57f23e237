"""Conditions that need a person. They have the names of the Prometheus alerts, and each has its section of the runbook."""
