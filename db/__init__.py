"""The database as both services use it: schema, connections, statements (README.md has the tables, functions and rights).

- schema.sql: the schema that the migrations create. migrations/: the migrations. sql/: the statements of these modules.
- cli.py, commands.py: `outbox-migrate`. migrate.py: upgrades and downgrades the schema, and checks its revision when a service starts.
- server_check.py: `outbox-migrate check`: whether this Postgres can hold an outbox.
- connection.py: opens connections, all in the same way. refused.py: why a connection could not be opened.
- statements.py: named queries from `.sql` files.
- windows.py: cuts batches into windows, so that a statement locks few partitions.
- lock_holders.py: finds the holder of an advisory lock.
- operations.py: the operator log.
- polled_gauges.py: metrics that come from Postgres.
- dump.py, dbt_sources.py: write db/schema.sql, and the audit views as sources of dbt.
"""
