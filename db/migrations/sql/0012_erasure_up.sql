-- Who may erase. No service is a member.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'outbox_eraser') THEN
        CREATE ROLE outbox_eraser NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;  -- the migration of another database came first
END $$;

-- What stands for a row of session_output, or for a dead letter, that was erased: nothing that its events or outputs said.
CREATE TABLE outbox.erased (
    erased_id      bigint      GENERATED ALWAYS AS IDENTITY,
    erased_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    key_hash       bytea,
    dead_letter_id bigint,
    batch_id       bigint      NOT NULL,
    generation     integer     NOT NULL,
    epoch          integer,
    lane           integer,
    revision       integer     NOT NULL,
    topic_ids      text[]      NOT NULL,
    partitions     integer[]   NOT NULL,
    ends           bigint[]    NOT NULL,
    outputs        integer[]   NOT NULL,
    output_bytes   bigint      NOT NULL,
    topics         text[]      NOT NULL,
    delivered_by   bigint[]    NOT NULL,
    was_parked     boolean     NOT NULL,
    CONSTRAINT erased_pkey PRIMARY KEY (erased_id),
    CONSTRAINT erased_parallel CHECK (
        cardinality(ends) > 0 AND cardinality(topic_ids) = cardinality(ends) AND cardinality(partitions) = cardinality(ends)
        AND cardinality(outputs) = cardinality(ends)),
    CONSTRAINT erased_row_or_letter CHECK (CASE WHEN dead_letter_id IS NULL THEN num_nulls(key_hash, lane) = 0 ELSE num_nonnulls(epoch, lane) = 0 END)
);
CREATE INDEX erased_batch_idx ON outbox.erased (batch_id);
CREATE INDEX erased_delivery_idx ON outbox.erased (epoch, lane, batch_id);
CREATE INDEX erased_key_idx ON outbox.erased (key_hash);
COMMENT ON TABLE outbox.erased IS 'What stands for each row of session_output and each dead letter that `publisher erase` has taken out.';
COMMENT ON COLUMN outbox.erased.erased_id IS 'number of the row';
COMMENT ON COLUMN outbox.erased.erased_at IS 'when it was erased';
COMMENT ON COLUMN outbox.erased.key_hash IS 'outbox.key_hash(session key); NULL: a dead letter without a key';
COMMENT ON COLUMN outbox.erased.dead_letter_id IS 'number of the dead letter; NULL: a row of session_output';
COMMENT ON COLUMN outbox.erased.batch_id IS 'the batch it was committed with';
COMMENT ON COLUMN outbox.erased.generation IS 'of that batch; 0: the ledger had it no more';
COMMENT ON COLUMN outbox.erased.epoch IS 'lane epoch of that batch; NULL: a dead letter';
COMMENT ON COLUMN outbox.erased.lane IS 'its lane; NULL: a dead letter';
COMMENT ON COLUMN outbox.erased.revision IS 'its revision';
COMMENT ON COLUMN outbox.erased.topic_ids IS 'of each of its sessions: Kafka''s id of the input topic';
COMMENT ON COLUMN outbox.erased.partitions IS 'input partition';
COMMENT ON COLUMN outbox.erased.ends IS 'offset of the session''s last event';
COMMENT ON COLUMN outbox.erased.outputs IS 'how many outputs the session had';
COMMENT ON COLUMN outbox.erased.output_bytes IS 'bytes of all values';
COMMENT ON COLUMN outbox.erased.topics IS 'output topics, each once';
COMMENT ON COLUMN outbox.erased.delivered_by IS 'seq of each delivery of the lane that counts it';
COMMENT ON COLUMN outbox.erased.was_parked IS 'it was put aside: outbox.parked had it';
GRANT SELECT ON outbox.erased TO outbox_writer, outbox_publisher, outbox_auditor, outbox_eraser;

CREATE FUNCTION outbox.key_hash(session_key text) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN sha256(uuid_send((SELECT i.outbox_uuid FROM outbox.identity i)) || convert_to(session_key, 'UTF8'));
COMMENT ON FUNCTION outbox.key_hash(text) IS 'What stands for a session key that was erased: SHA-256 of the outbox uuid''s 16 bytes and the key.';

-- Until the transaction ends: nothing begins to need old rows, and no process takes up a replay.
CREATE FUNCTION outbox.hold_for_erasure() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    -- Any other transaction of the caller may have looked before somebody began to need the rows.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a % transaction does not see what others need by now', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('outbox.retention', 0));
    PERFORM FROM outbox.replay r WHERE r.state IN ('running', 'paused') ORDER BY r.replay_id FOR NO KEY UPDATE;
END $$;
COMMENT ON FUNCTION outbox.hold_for_erasure() IS 'Keeps audits, resumes and replays from beginning until the transaction ends.';

CREATE FUNCTION outbox.rows_of_key(session_key text, from_batch bigint, to_batch bigint)
RETURNS TABLE (batch_id bigint, sessions integer, topics text[], keys bytea[], partitions integer[], is_delivered boolean, replays bigint[])
    LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    -- EXECUTE plans it with the bounds as constants, so that only the partitions of these batches are locked.
    RETURN QUERY EXECUTE $query$
        SELECT o.batch_id, cardinality(o.session_ends), o.topics, o.keys, o.partitions,
               -- The lane is past the whole batch, so that no cursor of a lane names the row. A resume that did not end may have set it back.
               coalesce((SELECT p.through_batch >= o.batch_id AND p.stopped_why IS DISTINCT FROM 'resuming'
                         FROM outbox.lane_position p
                         WHERE p.lane = o.lane AND p.epoch = (SELECT max(e.epoch) FROM outbox.lane_epoch e WHERE e.from_batch <= o.batch_id)), false),
               -- A process that works on a replay may hold the row; one that stands at it continues after it.
               ARRAY(SELECT r.replay_id
                     FROM outbox.replay r
                     WHERE r.from_batch <= o.batch_id AND r.to_batch >= o.batch_id
                       AND (NOT r.only_keys OR EXISTS (SELECT FROM outbox.replay_key k WHERE k.replay_id = r.replay_id AND k.session_key = $1))
                       AND CASE WHEN r.cursor_batch = o.batch_id AND r.cursor_key = $1 THEN r.state IN ('running', 'paused')
                                ELSE (r.cursor_batch < o.batch_id OR (r.cursor_batch = o.batch_id AND r.cursor_key < $1))
                                     AND r.lease_until >= now()
                                     AND EXISTS (SELECT FROM pg_stat_activity a
                                                 WHERE a.pid = r.lease_backend_pid AND (a.backend_start = r.lease_backend_start) IS NOT FALSE) END
                     ORDER BY r.replay_id)
        FROM outbox.session_output o
        WHERE o.session_key = $1 AND o.batch_id >= $2 AND o.batch_id <= $3
        ORDER BY o.batch_id
    $query$ USING session_key, from_batch, to_batch;
END $$;
COMMENT ON FUNCTION outbox.rows_of_key(text, bigint, bigint) IS
    'The rows of a session key in a range of batches: whether its lane has delivered each, and the replays that need it as it is.';

CREATE FUNCTION outbox.erase_rows(session_key text, batch_ids bigint[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    first_batch CONSTANT bigint := (SELECT min(b) FROM unnest(batch_ids) b);
    last_batch CONSTANT bigint := (SELECT max(b) FROM unnest(batch_ids) b);
    ready bigint[];
    erased bigint;
BEGIN
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
END $$;
COMMENT ON FUNCTION outbox.erase_rows(text, bigint[]) IS
    'Erases the rows of a session key in these batches that are delivered and that no replay needs; returns how many. Under the writer lock.';

CREATE FUNCTION outbox.erase_parked(session_key text, batch_ids bigint[]) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    -- The lane counts them: Kafka's progress records do, too.
    AS $$
    WITH deleted AS (
        DELETE FROM outbox.parked p WHERE p.session_key = erase_parked.session_key AND p.batch_id = ANY (batch_ids) RETURNING p.epoch, p.lane
    )
    UPDATE outbox.lane l SET pruned_parked = l.pruned_parked + n.rows
    FROM (SELECT d.epoch, d.lane, count(*) AS rows FROM deleted d GROUP BY d.epoch, d.lane) n
    WHERE l.epoch = n.epoch AND l.lane = n.lane
$$;
COMMENT ON FUNCTION outbox.erase_parked(text, bigint[]) IS 'Part of erase_rows() and erase_traces().';

CREATE FUNCTION outbox.letters_of_key(session_key text, letter_ids bigint[])
RETURNS TABLE (dead_letter_id bigint, is_named boolean)
    LANGUAGE sql STABLE SECURITY DEFINER ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    -- A record whose key cannot be read may name it all the same.
    AS $$
    SELECT d.dead_letter_id, d.session_key IS NOT NULL OR d.dead_letter_id = ANY (letter_ids)
    FROM outbox.dead_letter d
    WHERE d.session_key = letters_of_key.session_key
       OR (d.session_key IS NULL
           AND (d.dead_letter_id = ANY (letter_ids)
                OR EXISTS (SELECT FROM unnest(d.event_values) v WHERE position(convert_to(letters_of_key.session_key, 'UTF8') IN v) > 0)
                OR position(letters_of_key.session_key IN d.detail) > 0))
    ORDER BY d.dead_letter_id
$$;
COMMENT ON FUNCTION outbox.letters_of_key(text, bigint[]) IS
    'Dead letters of a session key; is_named false: one without a key whose events hold its bytes.';

CREATE FUNCTION outbox.erase_letters(letter_ids bigint[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    erased bigint;
BEGIN
    PERFORM outbox.lock_writer();
    WITH gone AS (
        DELETE FROM outbox.dead_letter d WHERE d.dead_letter_id = ANY (letter_ids) RETURNING d.*
    )
    INSERT INTO outbox.erased (key_hash, dead_letter_id, batch_id, generation, revision, topic_ids, partitions, ends, outputs, output_bytes, topics,
        delivered_by, was_parked)
    SELECT outbox.key_hash(g.session_key), g.dead_letter_id, g.batch_id, g.generation, g.revision, ARRAY[g.topic_id], ARRAY[g.partition],
           ARRAY[g.last_offset], ARRAY[0], 0, '{}', '{}', false
    FROM gone g;
    GET DIAGNOSTICS erased = ROW_COUNT;
    RETURN erased;
END $$;
COMMENT ON FUNCTION outbox.erase_letters(bigint[]) IS 'Erases dead letters; returns how many. Under the writer lock.';

CREATE FUNCTION outbox.erase_traces(session_key text, OUT changed bigint, OUT kept text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    key_bytes CONSTANT bytea := convert_to(session_key, 'UTF8');
    found record;
    step bigint;
BEGIN
    changed := 0;
    kept := '{}';
    PERFORM outbox.hold_for_erasure();
    PERFORM outbox.lock_writer();
    DELETE FROM outbox.replay_key k WHERE k.session_key = erase_traces.session_key;
    GET DIAGNOSTICS step = ROW_COUNT;
    changed := changed + step;
    -- Where retention has dropped the rows, a cursor has nothing left to tell apart within the batch.
    PERFORM outbox.erase_parked(session_key, ARRAY(
        SELECT p.batch_id FROM outbox.parked p
        WHERE p.session_key = erase_traces.session_key AND p.state <> 'parked'
          AND NOT EXISTS (SELECT FROM outbox.output_partition k WHERE p.batch_id BETWEEN k.from_batch AND k.to_batch)));
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
    -- In the words of `publisher replay`: a reason holds no other key.
    UPDATE outbox.replay r SET reason = replace(r.reason, format('session key ''%s'', for', session_key), 'session key (erased), for')
    WHERE position(format('session key ''%s'', for', session_key) IN r.reason) > 0;
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
        WHERE b.open_state::text LIKE '%"tombstones"%' AND position(key_bytes IN decode(p.open ->> 'tombstones', 'base64')) > 0
        UNION ALL
        SELECT 'generation', g.generation, t.topic_id, p.partition,
               CASE WHEN NOT EXISTS (SELECT FROM outbox.batch n WHERE n.generation = g.generation AND n.kind = 'stream')
                    THEN CASE WHEN g.generation = (SELECT max(n.generation) FROM outbox.generation n) THEN 'the current position'
                              ELSE 'the last position of generation ' || g.generation END END
        FROM outbox.generation g
        CROSS JOIN LATERAL jsonb_each(g.open_state) AS t (topic_id, partitions)
        CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, open)
        WHERE position(key_bytes IN decode(p.open ->> 'tombstones', 'base64')) > 0
        UNION ALL
        SELECT 'savepoint', s.savepoint_id, t.topic_id, p.partition, CASE WHEN s.deleted_at IS NULL THEN 'savepoint ' || s.name END
        FROM outbox.savepoint s
        CROSS JOIN LATERAL jsonb_each(s.open_state) AS t (topic_id, partitions)
        CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, open)
        WHERE position(key_bytes IN decode(p.open ->> 'tombstones', 'base64')) > 0
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

CREATE FUNCTION outbox.prune_erased(keep_s double precision, max_rows integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    pruned bigint;
BEGIN
    DELETE FROM outbox.erased d
    WHERE d.erased_id IN (
        SELECT x.erased_id
        FROM outbox.erased x
        WHERE x.batch_id < outbox.retention_floor() AND x.erased_at < now() - make_interval(secs => keep_s)
          -- No reissue can come across its events again: no savepoint is older, and the current position is past them.
          AND NOT EXISTS (SELECT FROM outbox.savepoint s WHERE s.deleted_at IS NULL AND s.created_at < x.erased_at)
          AND NOT EXISTS (
              SELECT FROM unnest(x.topic_ids, x.partitions, x.ends) AS e (topic_id, partition, end_offset)
              WHERE e.end_offset >= (
                  SELECT (coalesce(b.end_offsets, g.start_offsets) #>> ARRAY[e.topic_id, e.partition::text])::bigint
                  FROM (SELECT n.generation, n.start_offsets FROM outbox.generation n ORDER BY n.generation DESC LIMIT 1) g
                  LEFT JOIN LATERAL (
                      SELECT n.end_offsets FROM outbox.batch n
                      WHERE n.generation = g.generation AND n.kind = 'stream' ORDER BY n.batch_id DESC LIMIT 1) b ON true))
        ORDER BY x.erased_id
        LIMIT max_rows);
    GET DIAGNOSTICS pruned = ROW_COUNT;
    RETURN pruned;
END $$;
COMMENT ON FUNCTION outbox.prune_erased(double precision, integer) IS
    'Part of retention: deletes what stands for erased rows that nothing counts any more; returns how many.';

-- As before, but what was erased counts.
CREATE OR REPLACE FUNCTION outbox.check_batch_counts(from_batch bigint, to_batch bigint)
RETURNS TABLE (batch_id bigint, in_ledger boolean, ledger_sessions bigint, ledger_events bigint, ledger_bytes bigint,
               row_sessions bigint, row_events bigint, row_bytes bigint)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 10
BEGIN ATOMIC
    SELECT coalesce(b.batch_id, r.batch_id), b.batch_id IS NOT NULL, b.sessions::bigint, b.output_events, b.output_bytes,
           coalesce(r.sessions, 0) + coalesce(e.sessions, 0), coalesce(r.events, 0) + coalesce(e.events, 0),
           coalesce(r.bytes, 0) + coalesce(e.bytes, 0)
    FROM (
        SELECT l.batch_id, l.sessions, l.output_events, l.output_bytes
        FROM outbox.batch l
        WHERE l.batch_id >= check_batch_counts.from_batch AND l.batch_id <= check_batch_counts.to_batch
    ) b
    FULL JOIN (
        SELECT n.batch_id, sum(n.sessions) AS sessions, sum(n.events) AS events, sum(n.bytes)::bigint AS bytes
        FROM (
            -- OFFSET 0: each row is made small before it is sorted or grouped, or the values would be sorted with it.
            SELECT o.batch_id, cardinality(o.session_ends) AS sessions, cardinality(o.topics) AS events,
                   (SELECT coalesce(sum(length(v)), 0) FROM unnest(o."values") v) AS bytes
            FROM outbox.batch_rows(check_batch_counts.from_batch, check_batch_counts.to_batch) o
            OFFSET 0
        ) n
        GROUP BY n.batch_id
    ) r ON r.batch_id = b.batch_id
    LEFT JOIN (
        SELECT x.batch_id, sum(cardinality(x.ends)) AS sessions, sum(outbox.total(x.outputs))::bigint AS events, sum(x.output_bytes)::bigint AS bytes
        FROM outbox.erased x
        WHERE x.lane IS NOT NULL AND x.batch_id >= check_batch_counts.from_batch AND x.batch_id <= check_batch_counts.to_batch
        GROUP BY x.batch_id
    ) e ON e.batch_id = b.batch_id
    WHERE CASE WHEN b.batch_id IS NULL THEN true
               WHEN (b.sessions, b.output_events, b.output_bytes)
                    IS DISTINCT FROM (coalesce(r.sessions, 0) + coalesce(e.sessions, 0), coalesce(r.events, 0) + coalesce(e.events, 0),
                                      coalesce(r.bytes, 0) + coalesce(e.bytes, 0))
                   THEN r.batch_id IS NOT NULL
                        OR (SELECT range_agg(int8range(p.from_batch, p.to_batch, '[]')) FROM outbox.output_partition p WHERE NOT p.detaching)
                           @> b.batch_id
               ELSE false END;
END;

CREATE OR REPLACE FUNCTION outbox.check_emitted_twice(from_batch bigint, to_batch bigint)
RETURNS TABLE (session_key text, revision integer, topic_id text, partition integer, end_offset bigint, times bigint,
               first_batch bigint, last_batch bigint)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 10
BEGIN ATOMIC
    SELECT min(o.session_key), o.revision, o.topic_id, o.partition, o.end_offset, count(*), min(o.batch_id), max(o.batch_id)
    FROM (
        SELECT r.session_key, r.batch_id, r.revision, s.topic_id, s.partition, s.end_offset
        FROM outbox.batch_rows(check_emitted_twice.from_batch, check_emitted_twice.to_batch) r
        CROSS JOIN LATERAL unnest(r.session_topic_ids, r.session_partitions, r.session_ends) AS s (topic_id, partition, end_offset)
        WHERE NOT EXISTS (SELECT FROM outbox.parked p WHERE p.session_key = r.session_key AND p.batch_id = r.batch_id)
        UNION ALL
        SELECT NULL, x.batch_id, x.revision, s.topic_id, s.partition, s.end_offset
        FROM outbox.erased x
        CROSS JOIN LATERAL unnest(x.topic_ids, x.partitions, x.ends) AS s (topic_id, partition, end_offset)
        WHERE x.lane IS NOT NULL AND NOT x.was_parked
          AND x.batch_id >= check_emitted_twice.from_batch AND x.batch_id <= check_emitted_twice.to_batch
    ) o
    GROUP BY o.topic_id, o.partition, o.end_offset, o.revision
    HAVING count(*) > 1;
END;

CREATE OR REPLACE VIEW outbox.check_delivery_counts AS
SELECT d.epoch, d.lane, d.seq, d.after_batch, d.after_key, d.to_batch, d.to_key, d.sessions, d.events, r.sessions + e.sessions AS row_sessions,
       r.events + e.events AS row_events
FROM outbox.delivery d
CROSS JOIN LATERAL (
    SELECT coalesce(sum(cardinality(o.session_ends)), 0) AS sessions, coalesce(sum(cardinality(o.topics)), 0) AS events
    FROM outbox.session_output o
    WHERE o.lane = d.lane
      AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key)
      AND NOT EXISTS (
          SELECT FROM outbox.parked p
          WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id AND p.after_seq < d.seq)
) r
CROSS JOIN LATERAL (
    SELECT coalesce(sum(cardinality(x.ends)), 0) AS sessions, coalesce(sum(outbox.total(x.outputs)), 0)::bigint AS events
    FROM outbox.erased x
    WHERE x.epoch = d.epoch AND x.lane = d.lane AND x.batch_id BETWEEN d.after_batch AND d.to_batch AND d.seq = ANY (x.delivered_by)
) e
WHERE d.kind = 'delivery' AND d.after_batch IS NOT NULL;

CREATE OR REPLACE FUNCTION outbox.check_delivery_counts(from_batch bigint, to_batch bigint) RETURNS SETOF outbox.check_delivery_counts
    LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    first_batch bigint;
BEGIN
    IF from_batch > to_batch THEN
        RETURN;
    END IF;
    -- A delivery begins after the row that it names, so with that row's batch at the earliest.
    SELECT min(least(d.after_batch, d.to_batch)) INTO first_batch
    FROM outbox.delivery d
    WHERE d.kind = 'delivery' AND d.after_batch IS NOT NULL
      AND d.to_batch >= check_delivery_counts.from_batch AND d.to_batch <= check_delivery_counts.to_batch
      AND int8range(least(d.after_batch, d.to_batch), d.to_batch, '[]')
          && int8range(check_delivery_counts.from_batch, nullif(check_delivery_counts.to_batch, 9223372036854775807), '[]');
    RETURN QUERY EXECUTE $query$
        SELECT d.epoch, d.lane, d.seq, d.after_batch, d.after_key, d.to_batch, d.to_key, d.sessions, d.events, r.sessions + e.sessions AS row_sessions,
               r.events + e.events AS row_events
        FROM outbox.delivery d
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(cardinality(o.session_ends)), 0) AS sessions, coalesce(sum(cardinality(o.topics)), 0) AS events
            FROM outbox.session_output o
            WHERE o.lane = d.lane AND o.batch_id >= $3 AND o.batch_id <= $2
              AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key)
              AND NOT EXISTS (
                  SELECT FROM outbox.parked p
                  WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id AND p.after_seq < d.seq)
        ) r
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(cardinality(x.ends)), 0) AS sessions, coalesce(sum(outbox.total(x.outputs)), 0)::bigint AS events
            FROM outbox.erased x
            WHERE x.epoch = d.epoch AND x.lane = d.lane AND x.batch_id BETWEEN d.after_batch AND d.to_batch AND d.seq = ANY (x.delivered_by)
        ) e
        WHERE d.kind = 'delivery' AND d.after_batch IS NOT NULL AND d.to_batch >= $1 AND d.to_batch <= $2
          AND int8range(least(d.after_batch, d.to_batch), d.to_batch, '[]') && int8range($1, nullif($2, 9223372036854775807), '[]')
    $query$ USING from_batch, to_batch, coalesce(first_batch, from_batch);
END $$;

REVOKE ALL ON FUNCTION outbox.key_hash(text), outbox.hold_for_erasure(), outbox.rows_of_key(text, bigint, bigint), outbox.erase_rows(text, bigint[]),
    outbox.erase_parked(text, bigint[]), outbox.letters_of_key(text, bigint[]), outbox.erase_letters(bigint[]), outbox.erase_traces(text),
    outbox.prune_erased(double precision, integer) FROM PUBLIC;
GRANT USAGE ON SCHEMA outbox TO outbox_eraser;
GRANT SELECT ON outbox.alembic_version, outbox.identity, outbox.batch, outbox.generation, outbox.output_partition TO outbox_eraser;
GRANT INSERT (os_user, host, command, arguments, result) ON outbox.operation TO outbox_eraser;
GRANT EXECUTE ON FUNCTION outbox.key_hash(text) TO outbox_writer, outbox_publisher, outbox_auditor, outbox_eraser;
GRANT EXECUTE ON FUNCTION outbox.hold_for_erasure(), outbox.rows_of_key(text, bigint, bigint), outbox.erase_rows(text, bigint[]),
    outbox.letters_of_key(text, bigint[]), outbox.erase_letters(bigint[]), outbox.erase_traces(text), outbox.server_identity() TO outbox_eraser;
GRANT EXECUTE ON FUNCTION outbox.total(integer[]) TO outbox_publisher, outbox_auditor;
GRANT EXECUTE ON FUNCTION outbox.prune_erased(double precision, integer) TO outbox_retention;
