-- The writer lock needs a grant: a row that only outbox.lock_writer() locks. Any login could take the advisory lock of before, and keep it.
CREATE TABLE outbox.writer_lock (
    singleton boolean NOT NULL DEFAULT true,
    CONSTRAINT writer_lock_pkey PRIMARY KEY (singleton),
    CONSTRAINT writer_lock_one_row CHECK (singleton)
);
COMMENT ON TABLE outbox.writer_lock IS
    'One row, whose row lock is the writer lock. Apart from outbox.writer, so that the owner''s heartbeat never waits for a batch.';
COMMENT ON COLUMN outbox.writer_lock.singleton IS 'always true: there is one row';
INSERT INTO outbox.writer_lock DEFAULT VALUES;

-- Takes the writer lock for the transaction.
CREATE FUNCTION outbox.lock_writer() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    former CONSTANT bigint := hashtextextended('outbox.writer', 0);
BEGIN
    PERFORM FROM outbox.writer_lock FOR UPDATE;
    -- The release before has only the advisory lock. Both releases exclude each other by it; whoever may not write the outbox is not waited for.
    IF NOT pg_try_advisory_xact_lock(former) AND EXISTS (
        SELECT FROM pg_locks l
        JOIN pg_stat_activity a USING (pid)
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
          AND l.classid::bigint = (former >> 32) & 4294967295 AND l.objid::bigint = former & 4294967295
          AND (pg_has_role(a.usesysid, 'outbox_writer', 'MEMBER') OR pg_has_role(a.usesysid, 'outbox_publisher', 'MEMBER'))
    ) THEN
        PERFORM pg_advisory_xact_lock(former);
    END IF;
END $$;
COMMENT ON FUNCTION outbox.lock_writer() IS 'Takes the writer lock until the transaction ends.';
REVOKE ALL ON FUNCTION outbox.lock_writer() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.lock_writer() TO outbox_writer;

DO $$
DECLARE
    caller regprocedure;
BEGIN
    FOREACH caller IN ARRAY '{outbox.change_lanes(integer),"outbox.requeue(text[],bigint[],integer[],integer,uuid)"}'::regprocedure[] LOOP
        EXECUTE replace(pg_get_functiondef(caller), 'pg_advisory_xact_lock(hashtextextended(''outbox.writer'', 0))', 'outbox.lock_writer()');
    END LOOP;
END $$;
