"""Logs, metrics, health and traces of both services: one HTTP endpoint, and measurements that end nothing."""
