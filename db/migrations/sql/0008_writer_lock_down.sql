DO $$
DECLARE
    caller regprocedure;
BEGIN
    FOREACH caller IN ARRAY '{outbox.change_lanes(integer),"outbox.requeue(text[],bigint[],integer[],integer,uuid)"}'::regprocedure[] LOOP
        EXECUTE replace(pg_get_functiondef(caller), 'outbox.lock_writer()', 'pg_advisory_xact_lock(hashtextextended(''outbox.writer'', 0))');
    END LOOP;
END $$;
DROP FUNCTION outbox.lock_writer();
DROP TABLE outbox.writer_lock;
