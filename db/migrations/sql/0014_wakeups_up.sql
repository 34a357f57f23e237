-- The queue of notifications is the server's, and any login of any of its databases can fill it. Then pg_notify() fails the COMMIT.
CREATE FUNCTION outbox.wake(channel text, payload text) RETURNS void
    LANGUAGE sql
    BEGIN ATOMIC
        SELECT pg_notify(channel, payload) WHERE pg_notification_queue_usage() < 0.5;
    END;
COMMENT ON FUNCTION outbox.wake(text, text) IS
    'Tells the publishers at the commit, unless the server''s queue of notifications is half full: they poll, too.';
REVOKE ALL ON FUNCTION outbox.wake(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.wake(text, text) TO outbox_writer, outbox_publisher;

DO $$
DECLARE
    caller regprocedure;
BEGIN
    FOREACH caller IN ARRAY '{outbox.change_lanes(integer),"outbox.requeue(text[],bigint[],integer[],integer,uuid)"}'::regprocedure[] LOOP
        EXECUTE replace(pg_get_functiondef(caller), 'PERFORM pg_notify(', 'PERFORM outbox.wake(');
    END LOOP;
END $$;

-- Former ends of runs have the key of the session that the transform failed for.
UPDATE outbox.run
SET ended_because = regexp_replace(ended_because, ' failed for session .* that ends at ', ' failed for the session that ends at ')
WHERE ended_because LIKE '% failed for session % that ends at %';

-- What is pruned of a lane is the owner's word, in a new row as well.
REVOKE INSERT ON outbox.lane FROM outbox_publisher;
GRANT INSERT (epoch, lane) ON outbox.lane TO outbox_publisher;
