"""The migrations of the outbox schema; db/README.md tells how to add one."""
