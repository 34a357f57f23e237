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

-- What a reissue leaves out, for ever: a savepoint can be made at any position that the ledger has, and a generation's start is never pruned.
-- outbox.erased stands for single rows, which audits count while their batches are there.
CREATE TABLE outbox.erased_key (
    key_hash   bytea   NOT NULL,
    topic_id   text    NOT NULL,
    partition  integer NOT NULL,
    generation integer NOT NULL,
    through    bigint  NOT NULL,
    CONSTRAINT erased_key_pkey PRIMARY KEY (key_hash, topic_id, partition, generation)
);
CREATE INDEX erased_key_place_idx ON outbox.erased_key (topic_id, partition, through);
COMMENT ON TABLE outbox.erased_key IS 'Up to which offset of an input partition the events of a session key are erased. A reissue leaves them out.';
COMMENT ON COLUMN outbox.erased_key.key_hash IS 'outbox.key_hash(session key)';
COMMENT ON COLUMN outbox.erased_key.topic_id IS 'Kafka''s id of the input topic';
COMMENT ON COLUMN outbox.erased_key.partition IS 'input partition';
COMMENT ON COLUMN outbox.erased_key.generation IS 'the generation that read the events; from the cut of a later one on, offsets name other events';
COMMENT ON COLUMN outbox.erased_key.through IS 'offset of the last event that is erased';
GRANT SELECT ON outbox.erased_key TO outbox_writer, outbox_auditor;

CREATE FUNCTION outbox.remember_erased() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    INSERT INTO outbox.erased_key AS k (key_hash, topic_id, partition, generation, through)
    SELECT a.key_hash, e.topic_id, e.partition, a.generation, max(e.end_offset)
    FROM added a
    CROSS JOIN LATERAL unnest(a.topic_ids, a.partitions, a.ends) AS e (topic_id, partition, end_offset)
    WHERE a.key_hash IS NOT NULL
    GROUP BY a.key_hash, e.topic_id, e.partition, a.generation
    ON CONFLICT ON CONSTRAINT erased_key_pkey DO UPDATE SET through = excluded.through WHERE excluded.through > k.through;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION outbox.remember_erased() IS 'What is erased stays out of every reissue, also once outbox.erased is pruned.';
REVOKE ALL ON FUNCTION outbox.remember_erased() FROM PUBLIC;
CREATE TRIGGER erased_remember AFTER INSERT ON outbox.erased REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION outbox.remember_erased();

-- Retention may have dropped a key's rows, of which then nothing is in outbox.erased: so all that was read of the key counts as erased. What was
-- read is not for the caller to say, who could name offsets to come.
CREATE FUNCTION outbox.begin_erasure(session_keys text[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    changed bigint;
BEGIN
    PERFORM outbox.require_read_committed();
    INSERT INTO outbox.erased_key AS k (key_hash, topic_id, partition, generation, through)
    SELECT outbox.key_hash(n.session_key), p.topic_id, p.partition, p.generation, p.end_offset - 1
    FROM (SELECT DISTINCT s AS session_key FROM unnest(session_keys) s) n
    -- Of all generations: the newest may read again what an earlier one has read.
    CROSS JOIN (
        SELECT t.topic_id, e.partition::integer AS partition, (SELECT max(m.generation) FROM outbox.generation m) AS generation,
               max(least(e.end_offset::bigint, c.cut)) AS end_offset
        FROM outbox.generation g
        LEFT JOIN LATERAL (
            SELECT b.end_offsets FROM outbox.batch b WHERE b.generation = g.generation AND b.kind = 'stream' ORDER BY b.batch_id DESC LIMIT 1) b ON true
        CROSS JOIN LATERAL jsonb_each(coalesce(b.end_offsets, g.start_offsets)) AS t (topic_id, partitions)
        CROSS JOIN LATERAL jsonb_each_text(t.partitions) AS e (partition, end_offset)
        CROSS JOIN LATERAL (
            SELECT min((l.cut_offsets #>> ARRAY[t.topic_id, e.partition])::bigint) AS cut
            FROM outbox.generation l
            WHERE l.generation > g.generation AND l.cut_offsets IS NOT NULL) c
        GROUP BY t.topic_id, e.partition
    ) p
    WHERE p.end_offset > 0
    ON CONFLICT ON CONSTRAINT erased_key_pkey DO UPDATE SET through = excluded.through WHERE excluded.through > k.through;
    GET DIAGNOSTICS changed = ROW_COUNT;
    -- Last: no batch is under way that has looked for erased keys before this transaction is over.
    PERFORM outbox.lock_writer();
    RETURN changed;
END $$;
COMMENT ON FUNCTION outbox.begin_erasure(text[]) IS
    'Keeps what was read of session keys out of every reissue; returns in how many partitions that is more than before.';
REVOKE ALL ON FUNCTION outbox.begin_erasure(text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.begin_erasure(text[]) TO outbox_eraser;

INSERT INTO outbox.erased_key (key_hash, topic_id, partition, generation, through)
SELECT x.key_hash, e.topic_id, e.partition, x.generation, max(e.end_offset)
FROM outbox.erased x
CROSS JOIN LATERAL unnest(x.topic_ids, x.partitions, x.ends) AS e (topic_id, partition, end_offset)
WHERE x.key_hash IS NOT NULL
GROUP BY x.key_hash, e.topic_id, e.partition, x.generation;

CREATE OR REPLACE FUNCTION outbox.prune_erased(keep_s double precision, max_rows integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    floor_batch CONSTANT bigint := outbox.retention_floor();
    pruned bigint;
BEGIN
    PERFORM outbox.require_read_committed();
    DELETE FROM outbox.erased d
    WHERE d.erased_id IN (
        SELECT x.erased_id
        FROM outbox.erased x
        WHERE x.batch_id < floor_batch AND x.erased_at < now() - make_interval(secs => keep_s)
        ORDER BY x.erased_id
        LIMIT max_rows);
    GET DIAGNOSTICS pruned = ROW_COUNT;
    RETURN pruned;
END $$;
