DROP TABLE outbox.alembic_version; DROP SCHEMA outbox
