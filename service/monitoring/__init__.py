"""Metrics and health of both services: one HTTP endpoint, the loops that show a process alive, and measurements that end nothing."""
