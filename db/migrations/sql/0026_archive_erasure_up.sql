-- `publisher erase` writes tombstones of archived rows without a lock, so it must see whether a replay has sent such rows meanwhile.
CREATE FUNCTION outbox.archive_leases(partition_name text) RETURNS TABLE(replay_id bigint, lease_token bigint, lease_until timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT r.replay_id, CASE WHEN r.cursor_batch <= a.to_batch THEN r.lease_token END, CASE WHEN r.cursor_batch <= a.to_batch THEN r.lease_until END
    FROM outbox.archived a
    JOIN outbox.replay r ON r.from_archive AND r.from_batch <= a.to_batch AND r.to_batch >= a.from_batch
    WHERE a.partition_name = archive_leases.partition_name
$$;
COMMENT ON FUNCTION outbox.archive_leases(text) IS 'The replays that read the archive of a partition, and their leases until they are past it: a replay that sent rows of it meanwhile is not as it was.';
REVOKE ALL ON FUNCTION outbox.archive_leases(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.archive_leases(text) TO outbox_eraser;
CREATE OR REPLACE FUNCTION outbox.rewrite_archived(partition_name text, old_manifest bytea, new_manifest bytea, erased jsonb) RETURNS bigint[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    -- The last input position of each generation, of which retention keeps the row.
    positions CONSTANT jsonb[] := ARRAY(
        SELECT n.end_offsets
        FROM outbox.generation g
        CROSS JOIN LATERAL (
            SELECT b.end_offsets FROM outbox.batch b
            WHERE b.generation = g.generation AND b.kind = 'stream' ORDER BY b.batch_id DESC LIMIT 1) n);
    held outbox.archived;
    replays bigint[];
BEGIN
    PERFORM outbox.require_read_committed();
    -- Before the writer lock: a position only advances, and the batches of a partition stay the same.
    IF EXISTS (
        SELECT FROM outbox.archived a
        CROSS JOIN jsonb_to_recordset(erased) AS e (batch_id bigint, topic_ids text[], partitions integer[], ends bigint[])
        LEFT JOIN LATERAL unnest(e.topic_ids, e.partitions, e.ends) AS s (topic_id, partition, end_offset) ON true
        WHERE a.partition_name = rewrite_archived.partition_name
          AND ((e.batch_id BETWEEN a.from_batch AND a.to_batch) IS NOT TRUE
               OR (SELECT bool_and(p.position #> ARRAY[s.topic_id, s.partition::text] <= to_jsonb(s.end_offset)) FROM unnest(positions) AS p (position)))
    ) THEN
        RAISE EXCEPTION 'the archive of outbox.% has no such row: another batch, or a session that ends where the input is not read', partition_name
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
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
           OR r.cursor_batch <= held.to_batch AND r.lease_until >= now());
    IF replays <> '{}' THEN
        RETURN replays;
    END IF;
    INSERT INTO outbox.erased (key_hash, batch_id, generation, epoch, lane, revision, topic_ids, partitions, ends, outputs, output_bytes, topics,
        delivered_by, was_parked)
    -- Retention keeps the newest stream row of each generation, so the next stream row after a pruned one has its generation. After a retried or
    -- requeued batch it may be of a later one: then fewer cuts apply, and a reissue leaves out more.
    SELECT outbox.key_hash(e.session_key), e.batch_id,
           coalesce(b.generation,
                    (SELECT n.generation FROM outbox.batch n WHERE n.kind = 'stream' AND n.batch_id > e.batch_id ORDER BY n.batch_id LIMIT 1),
                    (SELECT max(g.generation) FROM outbox.generation g)),
           (SELECT max(n.epoch) FROM outbox.lane_epoch n WHERE n.from_batch <= e.batch_id),
           e.lane, e.revision, e.topic_ids, e.partitions, e.ends, e.outputs, e.output_bytes, e.topics, '{}', e.was_parked
    FROM jsonb_to_recordset(erased) AS e (session_key text, batch_id bigint, lane integer, revision integer, topic_ids text[], partitions integer[],
        ends bigint[], outputs integer[], output_bytes bigint, topics text[], was_parked boolean)
    LEFT JOIN outbox.batch b ON b.batch_id = e.batch_id;
    UPDATE outbox.archived a
    SET manifest_sha256 = new_manifest, rewritten_at = clock_timestamp(),
        row_count = a.row_count - e.row_count, sessions = a.sessions - e.sessions, outputs = a.outputs - e.outputs,
        output_bytes = a.output_bytes - e.output_bytes, erased_rows = a.erased_rows + e.row_count
    FROM (SELECT count(*) AS row_count, coalesce(sum(jsonb_array_length(j -> 'ends')), 0) AS sessions,
                 coalesce(sum((SELECT sum(n::bigint) FROM jsonb_array_elements_text(j -> 'outputs') n)), 0) AS outputs,
                 coalesce(sum((j ->> 'output_bytes')::bigint), 0) AS output_bytes
          FROM jsonb_array_elements(erased) j) e
    WHERE a.partition_name = rewrite_archived.partition_name;
    -- By typed SQL, too. The former digest leads back to the former files.
    INSERT INTO outbox.operation (os_user, host, command, arguments, result)
    VALUES ('?', '?', 'outbox.archived', '{}', jsonb_build_object('partition', partition_name, 'rows', jsonb_array_length(erased),
        'before', encode(old_manifest, 'hex'), 'after', encode(new_manifest, 'hex')));
    RETURN '{}';
END $$;
CREATE OR REPLACE FUNCTION outbox.erase_traces(session_key text, after_batch bigint DEFAULT 0, after_generation bigint DEFAULT 0, after_savepoint bigint DEFAULT 0, OUT changed bigint, OUT kept text[]) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    said CONSTANT text := format('session key %s, for', to_json(session_key));
    batch_ids bigint[];
    found record;
    has_row boolean;
    before text;
    step bigint;
BEGIN
    PERFORM outbox.require_read_committed();
    changed := 0;
    kept := '{}';
    PERFORM outbox.hold_for_erasure();
    -- Where retention has dropped the rows, a cursor has nothing left to tell apart within the batch.
    UPDATE outbox.delivery d SET after_key = ''
    WHERE d.after_key = session_key AND NOT EXISTS (SELECT FROM outbox.output_partition k WHERE d.after_batch BETWEEN k.from_batch AND k.to_batch);
    GET DIAGNOSTICS step = ROW_COUNT;
    changed := changed + step;
    UPDATE outbox.delivery d SET to_key = ''
    WHERE d.to_key = session_key AND NOT EXISTS (SELECT FROM outbox.output_partition k WHERE d.to_batch BETWEEN k.from_batch AND k.to_batch)
      -- The lane's own cursor, which no erasure changes.
      AND NOT EXISTS (SELECT FROM outbox.lane l
                      WHERE l.epoch = d.epoch AND l.lane = d.lane AND l.cursor_batch = d.to_batch AND l.cursor_key = d.to_key);
    GET DIAGNOSTICS step = ROW_COUNT;
    changed := changed + step;
    DELETE FROM outbox.replay_key k WHERE k.session_key = erase_traces.session_key;
    GET DIAGNOSTICS step = ROW_COUNT;
    changed := changed + step;
    -- A process that was away mirrors its last transaction when it is back, and so may write the key after the row was erased. EXECUTE plans
    -- with the batch as a constant, so that only its partition is locked.
    FOR found IN SELECT r.replay_id, r.cursor_batch, r.state FROM outbox.replay r WHERE r.cursor_key = session_key LOOP
        EXECUTE 'SELECT coalesce(bool_or(o.session_key = $1), false), max(o.session_key) FILTER (WHERE o.session_key < $1)
                 FROM outbox.session_output o WHERE o.session_key <= $1 AND o.batch_id = $2'
            INTO has_row, before USING session_key, found.cursor_batch;
        IF has_row THEN
            CONTINUE;
        ELSIF found.state IN ('running', 'paused') THEN
            kept := kept || format('replay %s', found.replay_id);
        ELSE
            UPDATE outbox.replay r SET cursor_key = coalesce(before, '')
            WHERE r.replay_id = found.replay_id AND r.cursor_batch = found.cursor_batch AND r.cursor_key = session_key;
            GET DIAGNOSTICS step = ROW_COUNT;
            changed := changed + step;
        END IF;
    END LOOP;
    -- In the words of `publisher replay`. The key is a JSON string there, so no longer key has it as a part.
    UPDATE outbox.replay r SET reason = replace(r.reason, said, 'session key (erased), for') WHERE position(said IN r.reason) > 0;
    GET DIAGNOSTICS step = ROW_COUNT;
    changed := changed + step;
    batch_ids := ARRAY(
        SELECT p.batch_id FROM outbox.parked p
        WHERE p.session_key = erase_traces.session_key AND p.state <> 'parked'
          AND NOT EXISTS (SELECT FROM outbox.output_partition k WHERE p.batch_id BETWEEN k.from_batch AND k.to_batch));
    PERFORM outbox.erase_parked(session_key, batch_ids);
    changed := changed + cardinality(batch_ids);
    -- Last, and for what is new alone: no batch is written meanwhile.
    PERFORM outbox.lock_writer();
    FOR found IN
        SELECT e.changed, e.kept
        FROM (VALUES ('batch', after_batch), ('generation', after_generation), ('savepoint', after_savepoint)) AS r (relation, after_id)
        CROSS JOIN LATERAL outbox.erase_positions(session_key, r.relation, r.after_id, NULL) e
    LOOP
        changed := changed + found.changed;
        kept := kept || found.kept;
    END LOOP;
    kept := ARRAY(SELECT DISTINCT k FROM unnest(kept) k ORDER BY k);
END $$;
COMMENT ON COLUMN outbox.erased.generation IS 'of that batch; if the ledger had it no more, of the next batch of the stream';
UPDATE outbox.erased x
SET generation = coalesce((SELECT n.generation FROM outbox.batch n WHERE n.kind = 'stream' AND n.batch_id > x.batch_id ORDER BY n.batch_id LIMIT 1),
                          (SELECT max(g.generation) FROM outbox.generation g))
WHERE x.generation = 0 AND EXISTS (SELECT FROM outbox.generation);
