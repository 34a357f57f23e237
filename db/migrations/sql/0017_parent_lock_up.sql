-- LOCK TABLE of a partitioned table locks each of its partitions, too, unless it says ONLY.
DO $$
DECLARE
    former CONSTANT text := pg_get_functiondef('outbox.ensure_partitions(bigint, bigint)'::regprocedure);
BEGIN
    EXECUTE replace(former, 'LOCK TABLE outbox.session_output', 'LOCK TABLE ONLY outbox.session_output');
END $$;
