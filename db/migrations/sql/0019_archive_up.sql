-- What retention has dropped and the archive has. The row commits with the drop, so it is there if and only if the rows are in the archive alone.
CREATE TABLE outbox.archived (
    partition_name  text        NOT NULL,
    from_batch      bigint      NOT NULL,
    to_batch        bigint      NOT NULL,
    archive_id      uuid        NOT NULL,
    manifest_sha256 bytea       NOT NULL,
    row_count       bigint      NOT NULL,
    sessions        bigint      NOT NULL,
    outputs         bigint      NOT NULL,
    output_bytes    bigint      NOT NULL,
    erased_rows     bigint      NOT NULL DEFAULT 0,
    archived_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    rewritten_at    timestamptz,
    CONSTRAINT archived_pkey PRIMARY KEY (partition_name),
    CONSTRAINT archived_range CHECK (from_batch >= 0 AND to_batch >= from_batch),
    CONSTRAINT archived_manifest CHECK (octet_length(manifest_sha256) = 32),
    CONSTRAINT archived_natural CHECK (least(row_count, sessions, outputs, output_bytes, erased_rows) >= 0)
);
CREATE INDEX archived_batch_idx ON outbox.archived (from_batch);
COMMENT ON TABLE outbox.archived IS 'Partitions of session_output that retention has dropped after it archived them. What reads the archive trusts this row, and nothing else.';
COMMENT ON COLUMN outbox.archived.partition_name IS 'the table that was dropped';
COMMENT ON COLUMN outbox.archived.from_batch IS 'its first batch';
COMMENT ON COLUMN outbox.archived.to_batch IS 'its last batch';
COMMENT ON COLUMN outbox.archived.archive_id IS 'stands for the commit ids of its batches in the progress of a replay from the archive';
COMMENT ON COLUMN outbox.archived.manifest_sha256 IS 'SHA-256 of the manifest, which has the digests of the files';
COMMENT ON COLUMN outbox.archived.row_count IS 'rows in the files';
COMMENT ON COLUMN outbox.archived.sessions IS 'their sessions';
COMMENT ON COLUMN outbox.archived.outputs IS 'their outputs';
COMMENT ON COLUMN outbox.archived.output_bytes IS 'bytes of all values';
COMMENT ON COLUMN outbox.archived.erased_rows IS 'rows that `publisher erase` has taken out since';
COMMENT ON COLUMN outbox.archived.archived_at IS 'when it was archived and dropped';
COMMENT ON COLUMN outbox.archived.rewritten_at IS 'when `publisher erase` rewrote it last';
GRANT SELECT ON outbox.archived TO outbox_publisher, outbox_auditor, outbox_retention, outbox_eraser;

ALTER TABLE outbox.replay ADD COLUMN from_archive boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN outbox.replay.from_archive IS 'reads the archive, not session_output';

CREATE FUNCTION outbox.hold_partition(partition_name text, OUT row_count bigint, OUT sessions bigint, OUT outputs bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    IF NOT pg_try_advisory_xact_lock(hashtextextended('outbox.retention', 0)) THEN
        RAISE EXCEPTION 'outputs are needed as they are for now, or another retention runs' USING ERRCODE = 'object_in_use';
    END IF;
    IF NOT EXISTS (
        SELECT FROM outbox.output_partition p
        WHERE p.name = partition_name AND NOT p.detaching AND p.to_batch < (SELECT coalesce(max(b.batch_id), 0) FROM outbox.batch b)
    ) THEN
        RAISE EXCEPTION 'outbox.% is no partition of outbox.session_output, or batches may still come into it', partition_name
            USING ERRCODE = 'undefined_table';
    END IF;
    -- Nobody changes its rows until the transaction ends; everybody may read them.
    EXECUTE format('LOCK TABLE ONLY outbox.%I IN SHARE MODE', partition_name);
    EXECUTE format('SELECT count(*), coalesce(sum(cardinality(o.session_ends)), 0), coalesce(sum(cardinality(o.topics)), 0) FROM ONLY outbox.%I o',
                   partition_name) INTO row_count, sessions, outputs;
END $$;
COMMENT ON FUNCTION outbox.hold_partition(text) IS 'Part of retention: keeps the rows of a closed partition as they are until the transaction ends, and counts them.';

CREATE FUNCTION outbox.drop_archived(partition_name text, archive_id uuid, manifest_sha256 bytea, row_count bigint, sessions bigint, outputs bigint,
                                     output_bytes bigint) RETURNS void
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
COMMENT ON FUNCTION outbox.drop_archived(text, uuid, bytea, bigint, bigint, bigint, bigint) IS 'Part of retention: drops a partition that this transaction has held since before it was archived, and records its manifest.';

CREATE FUNCTION outbox.rewrite_archived(partition_name text, old_manifest bytea, new_manifest bytea, erased jsonb) RETURNS bigint[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    held outbox.archived;
    replays bigint[];
BEGIN
    PERFORM outbox.require_read_committed();
    PERFORM outbox.hold_for_erasure();
    -- No batch of a reissue, which must leave out what is erased, may be under way.
    PERFORM outbox.lock_writer();
    SELECT * INTO held FROM outbox.archived a
    WHERE a.partition_name = rewrite_archived.partition_name AND a.manifest_sha256 = old_manifest FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the archive of outbox.% has another manifest by now', partition_name USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    -- A process that works on a replay may hold rows of the old files; one that stands at an erased row names its key.
    SELECT coalesce(array_agg(r.replay_id ORDER BY r.replay_id), '{}') INTO replays
    FROM outbox.replay r
    WHERE r.from_archive AND r.from_batch <= held.to_batch AND r.to_batch >= held.from_batch
      AND (r.state IN ('running', 'paused') AND r.cursor_key IN (SELECT e.session_key FROM jsonb_to_recordset(erased) AS e (session_key text))
           OR r.cursor_batch <= held.to_batch AND r.lease_until >= now()
              AND EXISTS (SELECT FROM pg_stat_activity a
                          WHERE a.pid = r.lease_backend_pid AND (a.backend_start = r.lease_backend_start) IS NOT FALSE));
    IF replays <> '{}' THEN
        RETURN replays;
    END IF;
    INSERT INTO outbox.erased (key_hash, batch_id, generation, epoch, lane, revision, topic_ids, partitions, ends, outputs, output_bytes, topics,
        delivered_by, was_parked)
    SELECT outbox.key_hash(e.session_key), e.batch_id, coalesce(b.generation, 0),
           (SELECT max(n.epoch) FROM outbox.lane_epoch n WHERE n.from_batch <= e.batch_id),
           e.lane, e.revision, e.topic_ids, e.partitions, e.ends, e.outputs, e.output_bytes, e.topics, '{}', e.was_parked
    FROM jsonb_to_recordset(erased) AS e (session_key text, batch_id bigint, lane integer, revision integer, topic_ids text[], partitions integer[],
        ends bigint[], outputs integer[], output_bytes bigint, topics text[], was_parked boolean)
    LEFT JOIN outbox.batch b ON b.batch_id = e.batch_id
    WHERE e.batch_id BETWEEN held.from_batch AND held.to_batch;
    UPDATE outbox.archived a
    SET manifest_sha256 = new_manifest, rewritten_at = clock_timestamp(),
        row_count = a.row_count - e.row_count, sessions = a.sessions - e.sessions, outputs = a.outputs - e.outputs,
        output_bytes = a.output_bytes - e.output_bytes, erased_rows = a.erased_rows + e.row_count
    FROM (SELECT count(*) AS row_count, coalesce(sum(jsonb_array_length(j -> 'ends')), 0) AS sessions,
                 coalesce(sum((SELECT sum(n::bigint) FROM jsonb_array_elements_text(j -> 'outputs') n)), 0) AS outputs,
                 coalesce(sum((j ->> 'output_bytes')::bigint), 0) AS output_bytes
          FROM jsonb_array_elements(erased) j) e
    WHERE a.partition_name = rewrite_archived.partition_name;
    RETURN '{}';
END $$;
COMMENT ON FUNCTION outbox.rewrite_archived(text, bytea, bytea, jsonb) IS 'Erases rows of the archive: its files without them have another manifest. Returns the replays that need the old files; then nothing has changed. Under the writer lock.';

-- A replay from the archive needs no ledger.
CREATE OR REPLACE FUNCTION outbox.retention_floor() RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
SELECT least(
    (SELECT min(p.from_batch) FROM outbox.output_partition p),
    (SELECT min(CASE WHEN p.stopped_why = 'resuming' THEN p.from_batch - 1 ELSE p.through_batch END)
     FROM outbox.lane_position p
     WHERE p.stopped_why = 'resuming' OR NOT p.ended),
    (SELECT min(greatest(r.from_batch, r.cursor_batch)) FROM outbox.replay r WHERE r.state IN ('running', 'paused') AND NOT r.from_archive),
    (SELECT min(p.batch_id) FROM outbox.parked p WHERE p.state = 'parked'),
    (SELECT max(b.batch_id) FROM outbox.batch b))
$$;

REVOKE ALL ON FUNCTION outbox.hold_partition(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.drop_archived(text, uuid, bytea, bigint, bigint, bigint, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.rewrite_archived(text, bytea, bytea, jsonb) FROM PUBLIC;
GRANT SELECT (outbox_uuid, system_identifier) ON outbox.identity TO outbox_retention;
GRANT SELECT (lanes) ON outbox.lane_epoch TO outbox_retention;
GRANT EXECUTE ON FUNCTION outbox.hold_partition(text) TO outbox_retention;
GRANT EXECUTE ON FUNCTION outbox.drop_archived(text, uuid, bytea, bigint, bigint, bigint, bigint) TO outbox_retention;
GRANT EXECUTE ON FUNCTION outbox.rewrite_archived(text, bytea, bytea, jsonb) TO outbox_eraser;
