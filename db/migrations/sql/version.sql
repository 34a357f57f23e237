SELECT version_num FROM outbox.alembic_version
