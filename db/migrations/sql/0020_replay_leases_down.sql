DO $$
DECLARE
    lease CONSTANT text := 'r.lease_until >= now()';
    backend CONSTANT text := E'\n                                     AND EXISTS (SELECT FROM pg_stat_activity a\n                                                 '
        'WHERE a.pid = r.lease_backend_pid AND (a.backend_start = r.lease_backend_start) IS NOT FALSE)';
BEGIN
    EXECUTE replace(pg_get_functiondef('outbox.rows_of_key(text, bigint, bigint)'::regprocedure), lease, lease || backend);
    EXECUTE replace(pg_get_functiondef('outbox.rewrite_archived(text, bytea, bytea, jsonb)'::regprocedure), lease, lease || backend);
END $$;
