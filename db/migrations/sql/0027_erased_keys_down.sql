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
END $$;
GRANT INSERT ON outbox.batch TO outbox_writer;
REVOKE INSERT (batch_id, kind, generation, spark_batch, part, commit_id, run_id, start_offsets, end_offsets, open_state, input_events, sessions,
    output_events, output_bytes, dead_letters, duplicate_events, transform_fingerprint) ON outbox.batch FROM outbox_writer;
DROP TRIGGER replay_date_state ON outbox.replay;
DROP TRIGGER dead_letter_date_state ON outbox.dead_letter;
DROP FUNCTION outbox.date_state();
