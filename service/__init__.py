"""Shared by both services. No database.

- settings/: outbox.toml and the environment, validated once. configuration.py, json_schema.py: their page, and their schema for editors.
- errors.py: every error that ends a process, its exit code, and whether another attempt may follow.
- lifecycle/: how a process begins, waits, survives failures and ends; fault points.
- observability/: logs, metrics, health and traces. probe.py: a health check for containers without curl.
- kafka/, logins/: Kafka's client; tokens and passwords that a provider grants for a limited time.
- formats/: schemas by id, and decoded values.
- commands/: what the command lines of both services share.
- json_text.py, printable.py: text for people. private_file.py: files that only their owner may read.
"""
