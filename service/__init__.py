"""Shared by both services: settings, logs, errors and exit codes, metrics and health, fault points. No database."""
