-- Through the catalog, because to_regclass() raises for a schema that the role may not use. A view, or a policy on rows, could run its owner's code.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'outbox' AND c.relname = 'alembic_version' AND c.relkind = 'r' AND NOT c.relrowsecurity
)
