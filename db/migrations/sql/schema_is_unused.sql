-- True when alembic's empty version table is all that is left.
SELECT count(*) = 1 AND NOT EXISTS (SELECT FROM outbox.alembic_version)
FROM pg_class
WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
