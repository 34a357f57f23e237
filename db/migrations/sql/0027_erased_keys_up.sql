-- Retention goes by these times, so no login writes them: a closed letter or a replay that ended long ago would go at once, and the outputs of a
-- partition whose last batches are old. The rights to the columns state_changed_at stay, for the code before this migration; they change nothing.
CREATE FUNCTION outbox.date_state() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    new.state_changed_at := CASE WHEN new.state = old.state THEN old.state_changed_at ELSE clock_timestamp() END;
    RETURN new;
END $$;
COMMENT ON FUNCTION outbox.date_state() IS 'Postgres alone says when a state changed: retention goes by it.';
REVOKE ALL ON FUNCTION outbox.date_state() FROM PUBLIC;
CREATE TRIGGER dead_letter_date_state BEFORE UPDATE OF state, state_changed_at ON outbox.dead_letter
    FOR EACH ROW EXECUTE FUNCTION outbox.date_state();
CREATE TRIGGER replay_date_state BEFORE UPDATE OF state, state_changed_at ON outbox.replay
    FOR EACH ROW EXECUTE FUNCTION outbox.date_state();
REVOKE INSERT ON outbox.batch FROM outbox_writer;
GRANT INSERT (batch_id, kind, generation, spark_batch, part, commit_id, run_id, start_offsets, end_offsets, open_state, input_events, sessions,
    output_events, output_bytes, dead_letters, duplicate_events, transform_fingerprint) ON outbox.batch TO outbox_writer;
CREATE OR REPLACE FUNCTION outbox.drop_archived(partition_name text, archive_id uuid, manifest_sha256 bytea, row_count bigint, sessions bigint, outputs bigint, output_bytes bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    IF NOT EXISTS (
        SELECT FROM pg_locks l
        WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.mode = 'ShareLock' AND l.granted
          AND l.relation = to_regclass(format('outbox.%I', partition_name))
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    ) THEN
        RAISE EXCEPTION 'outbox.% was not held while it was archived', partition_name USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    INSERT INTO outbox.archived (partition_name, from_batch, to_batch, archive_id, manifest_sha256, row_count, sessions, outputs, output_bytes)
    SELECT drop_archived.partition_name, p.from_batch, p.to_batch, drop_archived.archive_id, drop_archived.manifest_sha256,
           drop_archived.row_count, drop_archived.sessions, drop_archived.outputs, drop_archived.output_bytes
    FROM outbox.output_partition p
    WHERE p.name = drop_archived.partition_name;
    PERFORM outbox.drop_partition(drop_archived.partition_name);
    -- By typed SQL, too: nothing here proves that the archive has the rows.
    INSERT INTO outbox.operation (os_user, host, command, arguments, result)
    VALUES ('?', '?', 'outbox.archived', '{}', jsonb_build_object('partition', drop_archived.partition_name, 'rows', drop_archived.row_count,
        'before', NULL, 'after', encode(drop_archived.manifest_sha256, 'hex')));
END $$;
