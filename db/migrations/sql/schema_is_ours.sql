-- Who owns the schema, or anything in it, can replace that. Superusers have every role, so only what a superuser owns is theirs. NULL if there
-- is no schema.
SELECT bool_and(CASE WHEN r.rolsuper THEN o.rolsuper ELSE pg_has_role(o.oid, 'USAGE') END)
FROM (
    SELECT nspowner AS owner FROM pg_catalog.pg_namespace WHERE nspname = 'outbox'
    UNION
    SELECT c.relowner FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'outbox'
    UNION
    SELECT p.proowner FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'outbox'
) owned
JOIN pg_catalog.pg_roles o ON o.oid = owned.owner
JOIN pg_catalog.pg_roles r ON r.rolname = current_user
