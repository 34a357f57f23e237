-- ANALYZE, which autovacuum runs by itself, keeps samples of a column's values in pg_statistic, which an erasure of a few rows does not renew.
-- Plans need those of session_output.session_key, which erase_statistics() renews, and no other ones of keys or contents.
ALTER TABLE outbox.session_output ALTER "values" SET STATISTICS 0, ALTER keys SET STATISTICS 0, ALTER headers SET STATISTICS 0;
-- Statistics of all partitions together would be made by a person's ANALYZE alone, so no plan may need them.
ALTER TABLE ONLY outbox.session_output ALTER session_key SET STATISTICS 0;
ALTER TABLE outbox.dead_letter ALTER session_key SET STATISTICS 0, ALTER detail SET STATISTICS 0, ALTER event_values SET STATISTICS 0, ALTER event_types SET STATISTICS 0;
ALTER TABLE outbox.parked ALTER session_key SET STATISTICS 0, ALTER detail SET STATISTICS 0;
ALTER TABLE outbox.delivery ALTER after_key SET STATISTICS 0, ALTER to_key SET STATISTICS 0;
ALTER TABLE outbox.lane ALTER cursor_key SET STATISTICS 0, ALTER stopped_reason SET STATISTICS 0;
ALTER TABLE outbox.replay ALTER cursor_key SET STATISTICS 0, ALTER reason SET STATISTICS 0;
ALTER TABLE outbox.replay_key ALTER session_key SET STATISTICS 0;
ALTER TABLE outbox.batch ALTER open_state SET STATISTICS 0;
ALTER TABLE outbox.generation ALTER open_state SET STATISTICS 0;
ALTER TABLE outbox.savepoint ALTER open_state SET STATISTICS 0;
-- A target of zero removes no samples that are there. Only a superuser may; CHANGELOG.md has the statement for others.
DO $$
BEGIN
    IF (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user) THEN
        DELETE FROM pg_catalog.pg_statistic s
        USING pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
        WHERE s.starelid = a.attrelid AND s.staattnum = a.attnum AND a.attstattarget = 0 AND c.relnamespace = 'outbox'::regnamespace;
    END IF;
END $$;
CREATE FUNCTION outbox.partitions_of_erased(session_keys text[]) RETURNS SETOF name
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    hashes CONSTANT bytea[] := ARRAY(SELECT outbox.key_hash(k) FROM unnest(session_keys) k);
BEGIN
    RETURN QUERY
        SELECT p.name FROM outbox.output_partition p
        WHERE EXISTS (SELECT FROM outbox.erased e
                      WHERE e.key_hash = ANY (hashes) AND e.lane IS NOT NULL AND e.batch_id BETWEEN p.from_batch AND p.to_batch)
        ORDER BY p.name;
END $$;
COMMENT ON FUNCTION outbox.partitions_of_erased(text[]) IS 'The partitions of session_output that had rows of these session keys, which were erased.';
REVOKE ALL ON FUNCTION outbox.partitions_of_erased(text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.partitions_of_erased(text[]) TO outbox_eraser;
CREATE FUNCTION outbox.erase_statistics(partition_name name) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    own CONSTANT text := gen_random_uuid()::text;
    first_batch bigint;
BEGIN
    PERFORM outbox.require_read_committed();
    SELECT p.from_batch INTO first_batch FROM outbox.output_partition p WHERE p.name = partition_name;
    IF first_batch IS NULL THEN
        RETURN;
    END IF;
    BEGIN
        -- The lock of ANALYZE first: after the INSERT's, two could wait for each other.
        EXECUTE format('LOCK TABLE outbox.%I IN SHARE UPDATE EXCLUSIVE MODE', partition_name);
    EXCEPTION WHEN undefined_table THEN
        RETURN;
    END;
    -- ANALYZE leaves the statistics of an empty table as they are, so the table gets a row, which no query sees.
    EXECUTE format('INSERT INTO outbox.%I (session_key, batch_id, lane, revision, session_topic_ids, session_partitions, session_starts,
                        session_ends, session_started_ms, session_ended_ms, session_events, session_outputs, topics, "values")
                    VALUES ($1, $2, 0, 0, ''{-}'', ''{0}'', ''{0}'', ''{0}'', ''{0}'', ''{0}'', ''{1}'', ''{0}'', ''{}'', ''{}'')',
                   partition_name) USING own, first_batch;
    EXECUTE format('ANALYZE outbox.%I (session_key)', partition_name);
    EXECUTE format('DELETE FROM outbox.%I WHERE session_key = $1 AND batch_id = $2', partition_name) USING own, first_batch;
END $$;
COMMENT ON FUNCTION outbox.erase_statistics(name) IS 'Renews the planner''s statistics of the session keys in a partition; does nothing if there is no such partition.';
REVOKE ALL ON FUNCTION outbox.erase_statistics(name) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.erase_statistics(name) TO outbox_eraser;
CREATE OR REPLACE FUNCTION outbox.ensure_partitions(first_batch bigint, last_batch bigint) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    unit CONSTANT bigint := 10000;
    most_units CONSTANT bigint := 50;
    most_sessions CONSTANT bigint := 10000000;
    newest_batch CONSTANT bigint := (SELECT coalesce(max(b.batch_id), 0) FROM outbox.batch b);
    -- Whatever a caller asks for, what retention has dropped stays away.
    n bigint := greatest(first_batch, newest_batch) / unit;
    is_locked boolean := false;
    partition_name text;
    covered_to bigint;
    units bigint;
    next_n bigint;
    made integer := 0;
BEGIN
    PERFORM outbox.require_read_committed();
    -- The last bound keeps the number in a partition's name within its eight digits.
    IF (first_batch >= 1 AND last_batch BETWEEN first_batch AND newest_batch + 1000000 AND last_batch < 1000000000000) IS NOT TRUE THEN
        RAISE EXCEPTION 'ensure_partitions(%, %): not a range from 1 on that ends at most a million batches after the newest, %',
                first_batch, last_batch, newest_batch
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    WHILE n <= last_batch / unit LOOP
        partition_name := 'session_output_p' || lpad(n::text, 8, '0');
        -- A partition is named after its first 10,000 batches, so the last name up to this one is the one that may hold them.
        SELECT (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''(\d+)''\)'))[1]::bigint INTO covered_to
        FROM pg_class c
        WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r' AND c.relispartition
          AND c.relname >= 'session_output_p'::name AND c.relname <= partition_name::name
        ORDER BY c.relname DESC
        LIMIT 1;
        IF covered_to > n * unit THEN
            n := covered_to / unit;
            CONTINUE;
        ELSIF to_regclass('outbox.' || partition_name) IS NOT NULL THEN
            n := n + 1;
            CONTINUE;
        ELSIF NOT is_locked THEN
            -- The lock that ATTACH takes anyway, taken before the second look: of two callers, one makes the partition.
            LOCK TABLE ONLY outbox.session_output IN SHARE UPDATE EXCLUSIVE MODE;
            is_locked := true;
            CONTINUE;
        END IF;
        SELECT least(b.batches * 86400 / greatest(b.span_s, 1), most_sessions * b.batches / greatest(b.sessions, 1)) / unit INTO units
        FROM (
            SELECT count(*) AS batches, sum(l.sessions) AS sessions,
                   extract(epoch FROM max(l.created_at) - min(l.created_at))::bigint AS span_s
            FROM (SELECT x.sessions, x.created_at FROM outbox.batch x ORDER BY x.batch_id DESC LIMIT unit) l
        ) b
        WHERE b.batches = unit;
        SELECT substr(c.relname, 17, 8)::bigint INTO next_n
        FROM pg_class c
        WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r' AND c.relispartition
          AND c.relname > partition_name::name AND c.relname <= 'session_output_p99999999'::name
        ORDER BY c.relname
        LIMIT 1;
        units := least(greatest(coalesce(units, 1), 1), most_units, next_n - n);
        -- Made apart and attached, because CREATE TABLE ... PARTITION OF would wait for the readers of every partition and block new ones.
        -- toast_tuple_target: rows up to a page stay in it, uncompressed, since they are written once and read once.
        EXECUTE format('CREATE TABLE outbox.%I (LIKE outbox.session_output INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
                        WITH (toast_tuple_target = 8160)', partition_name);
        -- A refused duplicate shows the partition's constraint in diag.constraint_name, not the parent's: hence a name that is known.
        -- LIKE does not copy this.
        EXECUTE format('ALTER TABLE outbox.%I ALTER "values" SET STATISTICS 0, ALTER keys SET STATISTICS 0, ALTER headers SET STATISTICS 0',
                       partition_name);
        EXECUTE format('ALTER TABLE outbox.%I ADD CONSTRAINT %I UNIQUE (session_key, batch_id)',
                       partition_name, partition_name || '_key');
        EXECUTE format('CREATE INDEX %I ON outbox.%I (lane, batch_id, session_key)', partition_name || '_cursor_idx', partition_name);
        EXECUTE format('ALTER TABLE outbox.session_output ATTACH PARTITION outbox.%I FOR VALUES FROM (%s) TO (%s)',
                       partition_name, n * unit, (n + units) * unit);
        made := made + 1;
    END LOOP;
    RETURN made;
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
    FOR found IN SELECT r.replay_id, r.cursor_batch, r.state, r.from_archive FROM outbox.replay r WHERE r.cursor_key = session_key LOOP
        EXECUTE 'SELECT coalesce(bool_or(o.session_key = $1), false), max(o.session_key) FILTER (WHERE o.session_key < $1)
                 FROM outbox.session_output o WHERE o.session_key <= $1 AND o.batch_id = $2'
            INTO has_row, before USING session_key, found.cursor_batch;
        IF has_row THEN
            CONTINUE;
        ELSIF found.state IN ('running', 'paused') THEN
            -- rewrite_archived() judges one that reads the archive.
            kept := kept || CASE WHEN found.from_archive THEN '{}' ELSE ARRAY[format('replay %s', found.replay_id)] END;
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
