-- A dead process may have asked Kafka for the commit: until its lease has passed, or another process has fenced it and gave the lease back,
-- what it held may be sent yet.
DO $$
DECLARE
    backend CONSTANT text :=
        '\s+AND EXISTS \(SELECT FROM pg_stat_activity a\s+WHERE a\.pid = r\.lease_backend_pid AND \(a\.backend_start = r\.lease_backend_start\) IS NOT FALSE\)';
BEGIN
    EXECUTE regexp_replace(pg_get_functiondef('outbox.rows_of_key(text, bigint, bigint)'::regprocedure), backend, '');
    EXECUTE regexp_replace(pg_get_functiondef('outbox.rewrite_archived(text, bytea, bytea, jsonb)'::regprocedure), backend, '');
END $$;
