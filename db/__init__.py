"""The database as both services use it: schema, connections, statements (README.md has the tables, functions and rights).

- schema.sql: what the migrations make. migrations/: the way there. sql/: the statements of these modules.
- cli.py, commands.py: `outbox-migrate`. migrate.py: brings the schema up and down, checks its revision at the start of a service.
- server_check.py: `outbox-migrate check`: can this Postgres hold an outbox?
- connection.py: connections, opened alike. refused.py: why one could not be opened.
- statements.py: named queries from `.sql` files.
- windows.py: cuts batches into windows, so that a statement locks few partitions.
- lock_holders.py: who holds an advisory lock.
- operations.py: the operator log.
- polled_gauges.py: metrics that are read from Postgres.
- dump.py, dbt_sources.py: make db/schema.sql, and the audit views as sources of dbt.
"""
