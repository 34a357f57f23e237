-- Who owns a schema can replace everything in it. Superusers have every role, so only what they own themselves is theirs.
SELECT coalesce(bool_and(
    CASE WHEN r.rolsuper THEN o.rolsuper ELSE pg_has_role(n.nspowner, 'USAGE') END
), true)
FROM pg_catalog.pg_namespace n
JOIN pg_catalog.pg_roles o ON o.oid = n.nspowner
JOIN pg_catalog.pg_roles r ON r.rolname = current_user
WHERE n.nspname = 'outbox'
