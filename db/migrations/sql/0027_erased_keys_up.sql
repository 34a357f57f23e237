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
-- now() is the beginning of the transaction, which the login could keep open for as long as deliveries are kept.
ALTER TABLE outbox.delivery ALTER COLUMN committed_at SET DEFAULT clock_timestamp();
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
COMMENT ON COLUMN outbox.erased_key.key_hash IS 'outbox.key_hash(session key); of a record without one: outbox.record_hash(its position)';
COMMENT ON COLUMN outbox.erased_key.topic_id IS 'Kafka''s id of the input topic';
COMMENT ON COLUMN outbox.erased_key.partition IS 'input partition';
COMMENT ON COLUMN outbox.erased_key.generation IS 'the generation that read the events; from the cut of a later one on, offsets name other events';
COMMENT ON COLUMN outbox.erased_key.through IS 'offset of the last event that is erased';
CREATE VIEW outbox.erased_offset AS
SELECT k.key_hash, k.topic_id, k.partition, least(k.through, c.cut - 1) AS through
FROM outbox.erased_key k
CROSS JOIN LATERAL (
    SELECT min((g.cut_offsets #>> ARRAY[k.topic_id, k.partition::text])::bigint) AS cut
    FROM outbox.generation g
    WHERE g.generation > k.generation AND g.cut_offsets IS NOT NULL) c;
COMMENT ON VIEW outbox.erased_offset IS 'outbox.erased_key without the offsets that name other events since a cut.';
GRANT SELECT ON outbox.erased_key, outbox.erased_offset TO outbox_writer, outbox_auditor;

-- Of all generations: the newest may read again what an earlier one has read. Offsets from a later cut on name other events.
CREATE FUNCTION outbox.read_ends(OUT topic_id text, OUT partition integer, OUT end_offset bigint) RETURNS SETOF record
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    BEGIN ATOMIC
    SELECT t.topic_id, e.partition::integer, max(least(e.end_offset::bigint, c.cut))
    FROM outbox.generation g
    LEFT JOIN LATERAL (
        SELECT b.end_offsets FROM outbox.batch b WHERE b.generation = g.generation AND b.kind = 'stream' ORDER BY b.batch_id DESC LIMIT 1) b ON true
    CROSS JOIN LATERAL jsonb_each(coalesce(b.end_offsets, g.start_offsets)) AS t (topic_id, partitions)
    CROSS JOIN LATERAL jsonb_each_text(t.partitions) AS e (partition, end_offset)
    CROSS JOIN LATERAL (
        SELECT min((l.cut_offsets #>> ARRAY[t.topic_id, e.partition])::bigint) AS cut
        FROM outbox.generation l
        WHERE l.generation > g.generation AND l.cut_offsets IS NOT NULL) c
    GROUP BY t.topic_id, e.partition;
    END;
COMMENT ON FUNCTION outbox.read_ends() IS 'How far the job has ever read each input partition, exclusive.';
REVOKE ALL ON FUNCTION outbox.read_ends() FROM PUBLIC;

CREATE FUNCTION outbox.record_hash(topic_id text, partition integer, record_offset bigint) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN sha256(uuid_send((SELECT i.outbox_uuid FROM outbox.identity i)) || '\x00'::bytea
        || convert_to(format('%s/%s/%s', topic_id, partition, record_offset), 'UTF8'));
COMMENT ON FUNCTION outbox.record_hash(text, integer, bigint) IS
    'What stands for a record without a session key that was erased: as key_hash, of a zero byte and the record''s position.';
REVOKE ALL ON FUNCTION outbox.record_hash(text, integer, bigint) FROM PUBLIC;

CREATE FUNCTION outbox.remember_erased() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    INSERT INTO outbox.erased_key AS k (key_hash, topic_id, partition, generation, through)
    SELECT coalesce(a.key_hash, outbox.record_hash(e.topic_id, e.partition, e.end_offset)), e.topic_id, e.partition, a.generation,
           max(least(e.end_offset, p.end_offset - 1))
    FROM added a
    CROSS JOIN LATERAL unnest(a.topic_ids, a.partitions, a.ends) AS e (topic_id, partition, end_offset)
    -- A caller of rewrite_archived could name offsets to come.
    JOIN outbox.read_ends() p ON p.topic_id = e.topic_id AND p.partition = e.partition AND p.end_offset > 0
    GROUP BY 1, e.topic_id, e.partition, a.generation
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
    SELECT n.key_hash, p.topic_id, p.partition, (SELECT max(m.generation) FROM outbox.generation m), p.end_offset - 1
    FROM (SELECT outbox.key_hash(s) AS key_hash FROM unnest(session_keys) s GROUP BY s OFFSET 0) n
    CROSS JOIN outbox.read_ends() p
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
SELECT coalesce(x.key_hash, outbox.record_hash(e.topic_id, e.partition, e.end_offset)), e.topic_id, e.partition, x.generation,
       max(least(e.end_offset, p.end_offset - 1))
FROM outbox.erased x
CROSS JOIN LATERAL unnest(x.topic_ids, x.partitions, x.ends) AS e (topic_id, partition, end_offset)
JOIN outbox.read_ends() p ON p.topic_id = e.topic_id AND p.partition = e.partition AND p.end_offset > 0
GROUP BY 1, e.topic_id, e.partition, x.generation;

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

CREATE OR REPLACE FUNCTION outbox.rows_of_key(session_key text, from_batch bigint, to_batch bigint) RETURNS TABLE(batch_id bigint, sessions integer, topics text[], keys bytea[], partitions integer[], is_delivered boolean, replays bigint[])
    LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    -- EXECUTE plans it with the bounds as constants, so that only the partitions of these batches are locked.
    RETURN QUERY EXECUTE $query$
        SELECT o.batch_id, cardinality(o.session_ends), o.topics, o.keys, o.partitions, n.is_delivered, n.replays
        FROM outbox.session_output o
        CROSS JOIN LATERAL (
            -- The row, and those of which it is the requeued copy: audits look for the copy as long as the original is there.
            WITH RECURSIVE needed (batch_id, epoch, lane) AS (
                SELECT o.batch_id, (SELECT max(e.epoch) FROM outbox.lane_epoch e WHERE e.from_batch <= o.batch_id), o.lane
                UNION
                SELECT p.batch_id, p.epoch, p.lane
                FROM needed c
                JOIN outbox.parked p ON p.session_key = $1 AND p.requeued_batch = c.batch_id
            )
            SELECT -- The lane is past the whole batch, so that no cursor of a lane names the row. A resume that did not end may have set it back.
                   (SELECT bool_and(p.through_batch >= c.batch_id AND p.stopped_why IS DISTINCT FROM 'resuming') AND count(p) = count(*)
                    FROM needed c
                    LEFT JOIN outbox.lane_position p ON p.lane = c.lane AND p.epoch = c.epoch) AS is_delivered,
                   -- A process that works on a replay may hold the row; one that stands at it continues after it.
                   ARRAY(SELECT r.replay_id
                         FROM outbox.replay r
                         WHERE (NOT r.only_keys OR EXISTS (SELECT FROM outbox.replay_key k WHERE k.replay_id = r.replay_id AND k.session_key = $1))
                           AND EXISTS (
                               SELECT FROM needed c
                               WHERE r.from_batch <= c.batch_id AND r.to_batch >= c.batch_id
                                 AND CASE WHEN r.cursor_batch = c.batch_id AND r.cursor_key = $1 THEN r.state IN ('running', 'paused')
                                          ELSE (r.cursor_batch < c.batch_id OR (r.cursor_batch = c.batch_id AND r.cursor_key < $1))
                                               AND r.lease_until >= now() END)
                         ORDER BY r.replay_id) AS replays
        ) n
        WHERE o.session_key = $1 AND o.batch_id >= $2 AND o.batch_id <= $3
        ORDER BY o.batch_id
    $query$ USING session_key, from_batch, to_batch;
END $$;
