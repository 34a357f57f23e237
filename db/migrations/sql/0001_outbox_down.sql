-- Drops everything that 0001_outbox_up.sql made, with all data. The schema goes with alembic's version table, in env.py.

DROP VIEW outbox.event;
DROP TABLE outbox.parked, outbox.delivery, outbox.lane, outbox.lane_epoch, outbox.bucket, outbox.dead_letter, outbox.session_output,
    outbox.batch, outbox.generation, outbox.writer, outbox.identity;
DROP FUNCTION outbox.ensure_partitions(bigint, bigint);
DROP FUNCTION outbox.total(integer[]);
DROP FUNCTION outbox.try_json(bytea);
DROP FUNCTION outbox.server_identity();

REVOKE ALL ON outbox.alembic_version FROM outbox_writer, outbox_publisher, outbox_auditor;
REVOKE ALL ON SCHEMA outbox FROM outbox_writer, outbox_publisher, outbox_auditor;

-- A role stays where another database of this server still uses it, or where somebody else made it.
DO $$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['outbox_writer', 'outbox_publisher', 'outbox_auditor'] LOOP
        BEGIN
            EXECUTE format('DROP ROLE %I', role_name);
        EXCEPTION WHEN dependent_objects_still_exist OR insufficient_privilege THEN
            RAISE NOTICE 'role % stays: %', role_name, SQLERRM;
        END;
    END LOOP;
END $$;
