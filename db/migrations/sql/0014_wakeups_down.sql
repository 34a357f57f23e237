REVOKE INSERT (epoch, lane) ON outbox.lane FROM outbox_publisher;
GRANT INSERT ON outbox.lane TO outbox_publisher;
DO $$
DECLARE
    caller regprocedure;
BEGIN
    FOREACH caller IN ARRAY '{outbox.change_lanes(integer),"outbox.requeue(text[],bigint[],integer[],integer,uuid)"}'::regprocedure[] LOOP
        EXECUTE replace(pg_get_functiondef(caller), 'PERFORM outbox.wake(', 'PERFORM pg_notify(');
    END LOOP;
END $$;
DROP FUNCTION outbox.wake(text, text);
