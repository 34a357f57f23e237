DROP FUNCTION outbox.erase_traces(text, bigint, bigint, bigint);
CREATE FUNCTION outbox.erase_traces(session_key text, OUT changed bigint, OUT kept text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    key_bytes CONSTANT bytea := convert_to(session_key, 'UTF8');
    said CONSTANT text := format('session key %s, for', to_json(session_key));
    batch_ids bigint[];
    found record;
    step bigint;
BEGIN
    PERFORM outbox.require_read_committed();
    changed := 0;
    kept := '{}';
    PERFORM outbox.hold_for_erasure();
    PERFORM outbox.lock_writer();
    DELETE FROM outbox.replay_key k WHERE k.session_key = erase_traces.session_key;
    GET DIAGNOSTICS step = ROW_COUNT;
    changed := changed + step;
    -- Where retention has dropped the rows, a cursor has nothing left to tell apart within the batch.
    batch_ids := ARRAY(
        SELECT p.batch_id FROM outbox.parked p
        WHERE p.session_key = erase_traces.session_key AND p.state <> 'parked'
          AND NOT EXISTS (SELECT FROM outbox.output_partition k WHERE p.batch_id BETWEEN k.from_batch AND k.to_batch));
    PERFORM outbox.erase_parked(session_key, batch_ids);
    changed := changed + cardinality(batch_ids);
    UPDATE outbox.delivery d SET after_key = ''
    WHERE d.after_key = session_key AND NOT EXISTS (SELECT FROM outbox.output_partition k WHERE d.after_batch BETWEEN k.from_batch AND k.to_batch);
    GET DIAGNOSTICS step = ROW_COUNT;
    changed := changed + step;
    UPDATE outbox.delivery d SET to_key = ''
    WHERE d.to_key = session_key AND NOT EXISTS (SELECT FROM outbox.output_partition k WHERE d.to_batch BETWEEN k.from_batch AND k.to_batch)
      AND d.to_batch < (SELECT coalesce(max(l.cursor_batch), 0) FROM outbox.lane l WHERE l.epoch = d.epoch AND l.lane = d.lane);
    GET DIAGNOSTICS step = ROW_COUNT;
    changed := changed + step;
    UPDATE outbox.replay r SET cursor_key = ''
    WHERE r.cursor_key = session_key AND r.state IN ('done', 'cancelled')
      AND NOT EXISTS (SELECT FROM outbox.output_partition k WHERE r.cursor_batch BETWEEN k.from_batch AND k.to_batch);
    GET DIAGNOSTICS step = ROW_COUNT;
    changed := changed + step;
    -- In the words of `publisher replay`. The key is a JSON string there, so no longer key has it as a part.
    UPDATE outbox.replay r SET reason = replace(r.reason, said, 'session key (erased), for') WHERE position(said IN r.reason) > 0;
    GET DIAGNOSTICS step = ROW_COUNT;
    changed := changed + step;
    -- A session that was too large and has not ended is remembered by its key, in base64. Where nothing starts from a position again, that goes.
    FOR found IN
        SELECT 'batch' AS relation, b.batch_id AS id, t.topic_id, p.partition,
               CASE WHEN b.batch_id = newest.batch_id THEN
                   CASE WHEN b.generation = (SELECT max(g.generation) FROM outbox.generation g) THEN 'the current position'
                        ELSE 'the last position of generation ' || b.generation END END AS needed
        FROM outbox.batch b
        CROSS JOIN LATERAL (SELECT max(n.batch_id) AS batch_id FROM outbox.batch n WHERE n.generation = b.generation AND n.kind = 'stream') newest
        CROSS JOIN LATERAL jsonb_each(b.open_state) AS t (topic_id, partitions)
        CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, open)
        WHERE b.open_state::text LIKE '%"tombstones"%' AND outbox.remembers(decode(p.open ->> 'tombstones', 'base64'), key_bytes)
        UNION ALL
        SELECT 'generation', g.generation, t.topic_id, p.partition,
               CASE WHEN NOT EXISTS (SELECT FROM outbox.batch n WHERE n.generation = g.generation AND n.kind = 'stream')
                    THEN CASE WHEN g.generation = (SELECT max(n.generation) FROM outbox.generation n) THEN 'the current position'
                              ELSE 'the last position of generation ' || g.generation END END
        FROM outbox.generation g
        CROSS JOIN LATERAL jsonb_each(g.open_state) AS t (topic_id, partitions)
        CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, open)
        WHERE outbox.remembers(decode(p.open ->> 'tombstones', 'base64'), key_bytes)
        UNION ALL
        SELECT 'savepoint', s.savepoint_id, t.topic_id, p.partition, CASE WHEN s.deleted_at IS NULL THEN 'savepoint ' || s.name END
        FROM outbox.savepoint s
        CROSS JOIN LATERAL jsonb_each(s.open_state) AS t (topic_id, partitions)
        CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, open)
        WHERE outbox.remembers(decode(p.open ->> 'tombstones', 'base64'), key_bytes)
    LOOP
        changed := changed + (found.needed IS NULL)::integer;
        IF found.needed IS NOT NULL THEN
            kept := kept || found.needed;
        ELSIF found.relation = 'batch' THEN
            UPDATE outbox.batch b SET open_state = b.open_state #- ARRAY[found.topic_id, found.partition, 'tombstones'] WHERE b.batch_id = found.id;
        ELSIF found.relation = 'generation' THEN
            UPDATE outbox.generation g SET open_state = g.open_state #- ARRAY[found.topic_id, found.partition, 'tombstones'] WHERE g.generation = found.id;
        ELSE
            UPDATE outbox.savepoint s SET open_state = s.open_state #- ARRAY[found.topic_id, found.partition, 'tombstones'] WHERE s.savepoint_id = found.id;
        END IF;
    END LOOP;
    kept := ARRAY(SELECT DISTINCT k FROM unnest(kept) k ORDER BY k);
END $$;
COMMENT ON FUNCTION outbox.erase_traces(text) IS
    'Erases a session key where it stands beside rows and letters: cursors, replays, positions of the past. Returns the positions that still need it.';
REVOKE ALL ON FUNCTION outbox.erase_traces(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.erase_traces(text) TO outbox_eraser;

DROP FUNCTION outbox.erase_positions(text, text, bigint, integer), outbox.without_key(jsonb, bytea);
DROP INDEX outbox.dead_letter_reading_idx;

CREATE OR REPLACE FUNCTION outbox.erase_rows(session_key text, batch_ids bigint[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    first_batch CONSTANT bigint := (SELECT min(b) FROM unnest(batch_ids) b);
    last_batch CONSTANT bigint := (SELECT max(b) FROM unnest(batch_ids) b);
    ready bigint[];
    erased bigint;
BEGIN
    PERFORM outbox.require_read_committed();
    PERFORM outbox.hold_for_erasure();
    -- No batch of a reissue, which must leave out what is erased, and no requeue may be under way.
    PERFORM outbox.lock_writer();
    SELECT coalesce(array_agg(r.batch_id), '{}') INTO ready
    FROM outbox.rows_of_key(erase_rows.session_key, first_batch, last_batch) r
    WHERE r.batch_id = ANY (batch_ids) AND r.is_delivered AND r.replays = '{}';
    IF ready = '{}' THEN
        RETURN 0;
    END IF;
    EXECUTE $query$
        INSERT INTO outbox.erased (key_hash, batch_id, generation, epoch, lane, revision, topic_ids, partitions, ends, outputs, output_bytes, topics,
            delivered_by, was_parked)
        SELECT outbox.key_hash($1), o.batch_id, coalesce(b.generation, 0), e.epoch, o.lane, o.revision, o.session_topic_ids, o.session_partitions,
               o.session_ends, o.session_outputs, (SELECT coalesce(sum(length(v)), 0) FROM unnest(o."values") v),
               ARRAY(SELECT DISTINCT t FROM unnest(o.topics) t ORDER BY t),
               ARRAY(SELECT d.seq
                     FROM outbox.delivery d
                     WHERE d.epoch = e.epoch AND d.lane = o.lane AND d.kind = 'delivery'
                       AND int8range(least(d.after_batch, d.to_batch), d.to_batch, '[]') @> o.batch_id
                       AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key)
                       AND (p.after_seq < d.seq) IS NOT TRUE
                     ORDER BY d.seq),
               p.batch_id IS NOT NULL
        FROM outbox.session_output o
        CROSS JOIN LATERAL (SELECT max(n.epoch) AS epoch FROM outbox.lane_epoch n WHERE n.from_batch <= o.batch_id) e
        LEFT JOIN outbox.batch b ON b.batch_id = o.batch_id
        LEFT JOIN outbox.parked p ON p.session_key = o.session_key AND p.batch_id = o.batch_id
        WHERE o.session_key = $1 AND o.batch_id = ANY ($2) AND o.batch_id >= $3 AND o.batch_id <= $4
    $query$ USING session_key, ready, first_batch, last_batch;
    GET DIAGNOSTICS erased = ROW_COUNT;
    EXECUTE $query$
        DELETE FROM outbox.session_output o WHERE o.session_key = $1 AND o.batch_id = ANY ($2) AND o.batch_id >= $3 AND o.batch_id <= $4
    $query$ USING session_key, ready, first_batch, last_batch;
    PERFORM outbox.erase_parked(session_key, ready);
    -- A cursor at an erased row becomes one at the row before it: no row that is kept lies between them.
    EXECUTE $query$
        UPDATE outbox.delivery d
        SET after_key = CASE WHEN d.after_key = $1 AND d.after_batch = ANY ($2)
                             THEN coalesce((SELECT max(o.session_key) FROM outbox.session_output o
                                            WHERE o.lane = d.lane AND o.batch_id = d.after_batch AND o.session_key < $1
                                              AND o.batch_id >= $3 AND o.batch_id <= $4), '')
                             ELSE d.after_key END,
            to_key = CASE WHEN d.to_key = $1 AND d.to_batch = ANY ($2)
                          THEN coalesce((SELECT max(o.session_key) FROM outbox.session_output o
                                         WHERE o.lane = d.lane AND o.batch_id = d.to_batch AND o.session_key < $1
                                           AND o.batch_id >= $3 AND o.batch_id <= $4), '')
                          ELSE d.to_key END
        WHERE (d.after_key = $1 AND d.after_batch = ANY ($2)) OR (d.to_key = $1 AND d.to_batch = ANY ($2))
    $query$ USING session_key, ready, first_batch, last_batch;
    EXECUTE $query$
        UPDATE outbox.replay r
        SET cursor_key = coalesce((SELECT max(o.session_key) FROM outbox.session_output o
                                   WHERE o.batch_id = r.cursor_batch AND o.session_key < $1 AND o.batch_id >= $3 AND o.batch_id <= $4), '')
        WHERE r.cursor_key = $1 AND r.cursor_batch = ANY ($2)
    $query$ USING session_key, ready, first_batch, last_batch;
    RETURN erased;
END $_$;

DROP FUNCTION outbox.erase_letters_of_key(text, integer);
CREATE FUNCTION outbox.erase_letters_of_key(session_key text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    RETURN outbox.erase_letters(ARRAY(
        SELECT d.dead_letter_id FROM outbox.dead_letter d WHERE d.session_key = erase_letters_of_key.session_key));
END $$;
COMMENT ON FUNCTION outbox.erase_letters_of_key(text) IS 'Erases the dead letters of a session key; returns how many.';
REVOKE ALL ON FUNCTION outbox.erase_letters_of_key(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.erase_letters_of_key(text) TO outbox_eraser;

CREATE OR REPLACE FUNCTION outbox.erase_letter_at(topic text, partition integer, first_offset bigint, OUT erased bigint, OUT still_open bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    PERFORM outbox.lock_writer();
    SELECT outbox.erase_letters(coalesce(array_agg(d.dead_letter_id) FILTER (WHERE d.state <> 'open'), '{}')),
           count(*) FILTER (WHERE d.state = 'open')
    INTO erased, still_open
    FROM outbox.dead_letter d
    WHERE d.session_key IS NULL AND d.topic = erase_letter_at.topic AND d.partition = erase_letter_at.partition
      AND d.first_offset = erase_letter_at.first_offset;
END $$;

CREATE OR REPLACE FUNCTION outbox.rewrite_archived(partition_name text, old_manifest bytea, new_manifest bytea, erased jsonb) RETURNS bigint[]
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
           OR r.cursor_batch <= held.to_batch AND r.lease_until >= now());
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

DROP FUNCTION outbox.prune_resumes();
CREATE FUNCTION outbox.prune_resumes() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    floor_batch CONSTANT bigint := outbox.retention_floor();
BEGIN
    PERFORM outbox.require_read_committed();
    DELETE FROM outbox.delivery d
    USING outbox.lane l
    WHERE d.epoch = l.epoch AND d.lane = l.lane AND d.seq <= l.pruned_seq AND d.kind = 'resume'
      AND greatest(d.after_batch, d.to_batch) < floor_batch;
END $$;
REVOKE ALL ON FUNCTION outbox.prune_resumes() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.prune_resumes() TO outbox_retention;
