DROP TRIGGER identity_rebound ON outbox.identity;
DROP FUNCTION outbox.log_rebinding();
CREATE OR REPLACE FUNCTION outbox.prune_processes(keep_s double precision, max_rows integer, OUT pruned bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    DELETE FROM outbox.publisher_process d
    WHERE d.process_id IN (
        SELECT p.process_id FROM outbox.publisher_process p
        WHERE coalesce(p.ended_at, p.alive_until) < now() - make_interval(secs => keep_s)
        LIMIT max_rows);
    GET DIAGNOSTICS pruned = ROW_COUNT;
END $$;

CREATE OR REPLACE FUNCTION outbox.ensure_partitions(first_batch bigint, last_batch bigint) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    unit CONSTANT bigint := 10000;
    most_units CONSTANT bigint := 50;
    most_sessions CONSTANT bigint := 10000000;
    n bigint := first_batch / unit;
    is_locked boolean := false;
    partition_name text;
    covered_to bigint;
    units bigint;
    next_n bigint;
    made integer := 0;
BEGIN
    PERFORM outbox.require_read_committed();
    -- The upper bound keeps the number in a partition's name within its eight digits.
    IF (first_batch >= 1 AND last_batch BETWEEN first_batch AND first_batch + 1000000 AND last_batch < 1000000000000) IS NOT TRUE THEN
        RAISE EXCEPTION 'ensure_partitions(%, %): not a range of at most a million batches from 1 on', first_batch, last_batch
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
            LOCK TABLE outbox.session_output IN SHARE UPDATE EXCLUSIVE MODE;
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
        EXECUTE format('ALTER TABLE outbox.%I ADD CONSTRAINT %I UNIQUE (session_key, batch_id)',
                       partition_name, partition_name || '_key');
        EXECUTE format('CREATE INDEX %I ON outbox.%I (lane, batch_id, session_key)', partition_name || '_cursor_idx', partition_name);
        EXECUTE format('ALTER TABLE outbox.session_output ATTACH PARTITION outbox.%I FOR VALUES FROM (%s) TO (%s)',
                       partition_name, n * unit, (n + units) * unit);
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;
