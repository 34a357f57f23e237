"""Code that both services share. Nothing here connects to Postgres.

- settings/: outbox.toml and the environment, validated once. configuration.py: their page in docs/. json_schema.py: their schema for
  editors.
- errors.py: the errors that end a process, their exit codes, and whether another attempt may follow.
- lifecycle/: how a process begins, waits, survives failures and ends; fault points.
- observability/: logs, metrics, health and traces. probe.py: a health check for containers without curl.
- kafka/, logins/: Kafka's client; tokens and passwords that a provider grants for a limited time.
- formats/: schemas by id, and decoded values.
- commands/: what the command lines of both services share.
- json_text.py, printable.py: text for people. private_file.py: files that only their owner may read.
"""
