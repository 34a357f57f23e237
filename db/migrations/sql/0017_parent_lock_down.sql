DO $$
DECLARE
    former CONSTANT text := pg_get_functiondef('outbox.ensure_partitions(bigint, bigint)'::regprocedure);
BEGIN
    EXECUTE replace(former, 'LOCK TABLE ONLY outbox.session_output', 'LOCK TABLE outbox.session_output');
END $$;
