-- Retention deletes parked rows that were requeued or discarded; the counts in Kafka's progress records still include them.
ALTER TABLE outbox.lane
    ADD COLUMN pruned_parked bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT lane_pruned_parked_natural CHECK (pruned_parked >= 0);
COMMENT ON COLUMN outbox.lane.pruned_parked IS 'parked rows of this lane that retention has deleted';

CREATE INDEX IF NOT EXISTS parked_lane_idx ON outbox.parked (epoch, lane, batch_id, session_key);
CREATE INDEX IF NOT EXISTS parked_batch_idx ON outbox.parked (batch_id, session_key);
CREATE INDEX IF NOT EXISTS parked_state_idx ON outbox.parked (state, reason);
CREATE INDEX IF NOT EXISTS parked_open_idx ON outbox.parked (batch_id, session_key) WHERE state = 'parked';

-- What retention has removed: a letter that is not there was removed, not lost.
CREATE TABLE outbox.removed_letters (
    reason       text        NOT NULL,
    state        text        NOT NULL,
    letters      bigint      NOT NULL,
    events       bigint      NOT NULL,
    newest_id    bigint      NOT NULL,
    newest_at    timestamptz NOT NULL,
    removed_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT removed_letters_pkey PRIMARY KEY (reason, state),
    CONSTRAINT removed_letters_natural CHECK (least(letters, events, newest_id) > 0)
);
COMMENT ON TABLE outbox.removed_letters IS 'Dead letters that retention has removed, counted by reason and by the state in which they were.';
COMMENT ON COLUMN outbox.removed_letters.reason IS 'their reason';
COMMENT ON COLUMN outbox.removed_letters.state IS 'their state when they were removed';
COMMENT ON COLUMN outbox.removed_letters.letters IS 'how many';
COMMENT ON COLUMN outbox.removed_letters.events IS 'events of theirs, those that were not kept included';
COMMENT ON COLUMN outbox.removed_letters.newest_id IS 'the greatest number among them';
COMMENT ON COLUMN outbox.removed_letters.newest_at IS 'when the newest of them was committed';
COMMENT ON COLUMN outbox.removed_letters.removed_at IS 'when the last of them was removed';
GRANT SELECT ON outbox.removed_letters TO outbox_writer, outbox_publisher, outbox_auditor;

-- How the newest run of retention ended, for the alert: its process has no metrics of its own.
CREATE TABLE outbox.retention (
    singleton boolean     NOT NULL DEFAULT true,
    ended_at  timestamptz,
    failed    text,
    CONSTRAINT retention_pkey PRIMARY KEY (singleton),
    CONSTRAINT retention_one_row CHECK (singleton)
);
INSERT INTO outbox.retention DEFAULT VALUES;
COMMENT ON TABLE outbox.retention IS 'How the newest run of `publisher retention` ended.';
COMMENT ON COLUMN outbox.retention.singleton IS 'there is one row';
COMMENT ON COLUMN outbox.retention.ended_at IS 'when; NULL: none has run since schema 0009';
COMMENT ON COLUMN outbox.retention.failed IS 'why it could not end in order; NULL: it did';
GRANT SELECT ON outbox.retention TO outbox_writer, outbox_publisher, outbox_auditor;

-- As before, but a new partition holds as many batches as the job commits in a day, or as hold ten million sessions: whole multiples of
-- 10,000, and 500,000 at the most. The rate is that of the newest 10,000 batches; before there are so many, a partition holds 10,000.
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

-- As before, at an eighth of the cost: it is looked at every few seconds, whole.
CREATE OR REPLACE VIEW outbox.output_partition AS
SELECT c.oid AS relation, c.relname AS name, r.from_batch, r.end_batch - 1 AS to_batch, i.inhdetachpending AS detaching
FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid
-- 0: an expression without columns, for which no table has to be opened and locked.
CROSS JOIN LATERAL (SELECT pg_get_expr(c.relpartbound, 0) AS bound OFFSET 0) e
CROSS JOIN LATERAL (
    SELECT CASE WHEN e.bound LIKE 'FOR VALUES FROM (''%'') TO (''%'')' THEN split_part(e.bound, '''', 2)::bigint END AS from_batch,
           CASE WHEN e.bound LIKE 'FOR VALUES FROM (''%'') TO (''%'')' THEN split_part(e.bound, '''', 4)::bigint END AS end_batch
) r
WHERE i.inhparent = 'outbox.session_output'::regclass AND r.from_batch IS NOT NULL;

-- The checks of a range of batches. EXECUTE plans them with the bounds as constants, so that only the partitions of the range are locked; the
-- views of (nearly) the same names, for people, read and lock all of them.
CREATE FUNCTION outbox.check_stray_rows(from_batch bigint, to_batch bigint) RETURNS SETOF outbox.check_stray_row
    LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN QUERY EXECUTE $query$
        WITH RECURSIVE most AS (
            SELECT coalesce(max(e.lanes), 0) AS lanes, coalesce(min(e.from_batch), 0) AS from_batch FROM outbox.lane_epoch e
        ), beyond (lane) AS (
            -- The lanes that no epoch ever had, each by a look at the index: a comparison would be taken for a third of the table.
            SELECT (SELECT min(r.lane) FROM outbox.session_output r WHERE r.lane >= most.lanes AND r.batch_id >= $1 AND r.batch_id <= $2) FROM most
            UNION ALL
            SELECT (SELECT min(r.lane) FROM outbox.session_output r WHERE r.lane > b.lane AND r.batch_id >= $1 AND r.batch_id <= $2) FROM beyond b WHERE b.lane IS NOT NULL
        )
        SELECT o.batch_id, o.session_key, o.lane, e.epoch, e.lanes
        FROM most
        CROSS JOIN outbox.epoch_range e
        CROSS JOIN LATERAL generate_series(e.lanes, most.lanes - 1) AS n (lane)
        CROSS JOIN LATERAL (
            SELECT r.batch_id, r.session_key, r.lane FROM outbox.session_output r
            WHERE r.lane = n.lane AND r.batch_id >= e.from_batch AND r.batch_id <= coalesce(e.to_batch, 9223372036854775807)
              AND r.batch_id >= $1 AND r.batch_id <= $2
            OFFSET 0
        ) o
        UNION ALL
        SELECT o.batch_id, o.session_key, o.lane, e.epoch, e.lanes
        FROM beyond b
        CROSS JOIN LATERAL (
            SELECT r.batch_id, r.session_key, r.lane FROM outbox.session_output r
            WHERE r.lane = b.lane AND r.batch_id >= $1 AND r.batch_id <= $2
            OFFSET 0
        ) o
        LEFT JOIN outbox.epoch_range e ON o.batch_id >= e.from_batch AND o.batch_id <= coalesce(e.to_batch, 9223372036854775807)
        WHERE b.lane IS NOT NULL
        UNION ALL
        SELECT o.batch_id, o.session_key, o.lane, NULL::integer, NULL::integer
        FROM most
        CROSS JOIN LATERAL generate_series(0, most.lanes - 1) AS n (lane)
        CROSS JOIN LATERAL (
            SELECT r.batch_id, r.session_key, r.lane FROM outbox.session_output r
            WHERE r.lane = n.lane AND r.batch_id < most.from_batch AND r.batch_id >= $1 AND r.batch_id <= $2
            OFFSET 0
        ) o
    $query$ USING from_batch, to_batch;
END $$;
COMMENT ON FUNCTION outbox.check_stray_rows(bigint, bigint) IS 'Check: rows of a range of batches whose lane their epoch does not have.';

CREATE FUNCTION outbox.check_delivery_counts(from_batch bigint, to_batch bigint) RETURNS SETOF outbox.check_delivery_counts
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
        SELECT d.epoch, d.lane, d.seq, d.after_batch, d.after_key, d.to_batch, d.to_key, d.sessions, d.events, r.sessions AS row_sessions,
               r.events AS row_events
        FROM outbox.delivery d
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(cardinality(o.session_ends)), 0) AS sessions, coalesce(sum(cardinality(o.topics)), 0) AS events
            FROM outbox.session_output o
            WHERE o.lane = d.lane AND o.batch_id >= $3 AND o.batch_id <= $2
              AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key)
              AND NOT EXISTS (
                  SELECT FROM outbox.parked p
                  WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id AND p.created_at <= d.committed_at)
        ) r
        WHERE d.kind = 'delivery' AND d.after_batch IS NOT NULL AND d.to_batch >= $1 AND d.to_batch <= $2
          AND int8range(least(d.after_batch, d.to_batch), d.to_batch, '[]') && int8range($1, nullif($2, 9223372036854775807), '[]')
    $query$ USING from_batch, to_batch, coalesce(first_batch, from_batch);
END $$;
COMMENT ON FUNCTION outbox.check_delivery_counts(bigint, bigint) IS 'What each delivery that ends in a range of batches says it sent, beside what its cursor range holds.';

CREATE FUNCTION outbox.check_parked_rows(from_batch bigint, to_batch bigint) RETURNS SETOF outbox.check_parked
    LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    first_copy bigint;
    last_copy bigint;
BEGIN
    -- Without any the range is empty: with NULL as a bound nothing is pruned.
    SELECT min(p.requeued_batch), max(p.requeued_batch) INTO first_copy, last_copy
    FROM outbox.parked p
    WHERE p.batch_id >= check_parked_rows.from_batch AND p.batch_id <= check_parked_rows.to_batch;
    RETURN QUERY EXECUTE $query$
        SELECT p.batch_id, p.session_key, p.epoch, p.lane, p.requeued_batch, w.detail
        FROM outbox.parked p
        LEFT JOIN outbox.session_output o ON o.session_key = p.session_key AND o.batch_id = p.batch_id AND o.batch_id >= $1 AND o.batch_id <= $2
        LEFT JOIN outbox.session_output c ON c.session_key = p.session_key AND c.batch_id = p.requeued_batch AND c.batch_id >= $3 AND c.batch_id <= $4
        CROSS JOIN LATERAL (
            SELECT CASE
                WHEN p.state = 'parked' AND o.batch_id IS NULL THEN 'parked, but the row is gone'
                WHEN p.state = 'requeued' AND c.batch_id IS NULL THEN 'requeued as batch ' || p.requeued_batch || ', which does not hold it'
                WHEN p.state = 'requeued' AND o.batch_id IS NOT NULL
                    AND (c.revision, c.session_topic_ids, c.session_partitions, c.session_ends, c.session_outputs, c.topics, c."values", c.keys, c.headers,
                         c.partitions, c.timestamps_ms)
                        IS DISTINCT FROM
                        (o.revision, o.session_topic_ids, o.session_partitions, o.session_ends, o.session_outputs, o.topics, o."values", o.keys, o.headers,
                         o.partitions, o.timestamps_ms)
                    THEN 'its copy in batch ' || p.requeued_batch || ' differs'
            END AS detail
        ) w
        -- A copy that retention has dropped says nothing.
        WHERE w.detail IS NOT NULL AND p.batch_id >= $1 AND p.batch_id <= $2
          AND (p.state = 'parked' OR EXISTS (
                SELECT FROM outbox.output_partition k WHERE NOT k.detaching AND p.requeued_batch >= k.from_batch AND p.requeued_batch <= k.to_batch))
    $query$ USING from_batch, to_batch, coalesce(first_copy, 0), coalesce(last_copy, -1);
END $$;
COMMENT ON FUNCTION outbox.check_parked_rows(bigint, bigint) IS 'Check: parked rows of a range of batches that are gone, requeued ones whose copy is missing or differs.';

GRANT EXECUTE ON FUNCTION outbox.check_stray_rows(bigint, bigint), outbox.check_delivery_counts(bigint, bigint),
    outbox.check_parked_rows(bigint, bigint) TO outbox_publisher, outbox_auditor;

-- As before, but the partitions are looked at only where a ledger row has no rows that it says it has, and once.
CREATE OR REPLACE FUNCTION outbox.check_batch_counts(from_batch bigint, to_batch bigint)
RETURNS TABLE (batch_id bigint, in_ledger boolean, ledger_sessions bigint, ledger_events bigint, ledger_bytes bigint,
               row_sessions bigint, row_events bigint, row_bytes bigint)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 10
BEGIN ATOMIC
    SELECT coalesce(b.batch_id, r.batch_id), b.batch_id IS NOT NULL, b.sessions::bigint, b.output_events, b.output_bytes,
           coalesce(r.sessions, 0), coalesce(r.events, 0), coalesce(r.bytes, 0)
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
    WHERE CASE WHEN b.batch_id IS NULL THEN true
               WHEN (b.sessions, b.output_events, b.output_bytes)
                    IS DISTINCT FROM (coalesce(r.sessions, 0), coalesce(r.events, 0), coalesce(r.bytes, 0))
                   THEN r.batch_id IS NOT NULL
                        OR (SELECT range_agg(int8range(p.from_batch, p.to_batch, '[]')) FROM outbox.output_partition p WHERE NOT p.detaching)
                           @> b.batch_id
               ELSE false END;
END;

-- As before, but by the checks of a range. A delivery belongs to the range in which it ends.
CREATE OR REPLACE FUNCTION outbox.audit_reconcile(from_batch bigint DEFAULT NULL, to_batch bigint DEFAULT NULL)
RETURNS TABLE (check_name text, severity text, epoch integer, lane integer, batch_id bigint, session_key text, detail text)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 10
BEGIN ATOMIC
    -- Not the time: a clock that was set back is no break of anything, and would stay here until retention takes the row.
    SELECT 'ledger_' || l.problem, CASE l.problem WHEN 'missing' THEN 'critical' ELSE 'error' END, NULL::integer, NULL::integer, l.batch_id,
           NULL::text, l.detail
    FROM outbox.audit_ledger l
    WHERE l.problem <> 'time'
      AND l.batch_id >= coalesce(audit_reconcile.from_batch, 0) AND l.batch_id <= coalesce(audit_reconcile.to_batch, 9223372036854775807)
    UNION ALL
    SELECT CASE WHEN c.in_ledger THEN 'batch_counts' ELSE 'rows_in_ledger' END, 'critical', NULL, NULL, c.batch_id, NULL,
           CASE WHEN c.in_ledger THEN 'the ledger says ' || c.ledger_sessions || ' sessions, ' || c.ledger_events || ' outputs, ' || c.ledger_bytes
                || ' bytes; its rows hold ' || c.row_sessions || ', ' || c.row_events || ', ' || c.row_bytes
                ELSE 'rows with ' || c.row_sessions || ' sessions, and no ledger row' END
    FROM outbox.check_batch_counts(coalesce(audit_reconcile.from_batch, 0), coalesce(audit_reconcile.to_batch, 9223372036854775807)) c
    UNION ALL
    SELECT 'rows_kept', 'critical', NULL, NULL, k.from_batch, NULL,
           k.partition || ' is not there, and of its ' || k.sessions || ' sessions in batches ' || k.from_batch || ' to ' || k.to_batch
               || ' some were not delivered'
    FROM outbox.check_rows_kept k
    WHERE k.to_batch >= coalesce(audit_reconcile.from_batch, 0) AND k.from_batch <= coalesce(audit_reconcile.to_batch, 9223372036854775807)
    UNION ALL
    SELECT 'lanes', 'critical', s.epoch, s.lane, s.batch_id, s.session_key,
           CASE WHEN s.epoch IS NULL THEN 'no epoch begins before it' ELSE 'epoch ' || s.epoch || ' has ' || s.lanes || ' lanes' END
    FROM outbox.check_stray_rows(coalesce(audit_reconcile.from_batch, 0), coalesce(audit_reconcile.to_batch, 9223372036854775807)) s
    UNION ALL
    SELECT 'emitted_once', 'critical', NULL, NULL, t.last_batch, t.session_key,
           'the session ending at ' || t.topic_id || '/' || t.partition || '/' || t.end_offset || ' was emitted ' || t.times || ' times for revision '
               || t.revision || ', first in batch ' || t.first_batch
    FROM outbox.check_emitted_twice(coalesce(audit_reconcile.from_batch, 0), coalesce(audit_reconcile.to_batch, 9223372036854775807)) t
    UNION ALL
    SELECT 'delivery_chain', 'error', d.epoch, d.lane, d.to_batch, NULL, d.detail
    FROM outbox.check_delivery_chain d
    WHERE d.to_batch >= coalesce(audit_reconcile.from_batch, 0)
      AND coalesce(d.after_batch, 0) <= coalesce(audit_reconcile.to_batch, 9223372036854775807)
    UNION ALL
    SELECT 'delivery_counts', 'critical', d.epoch, d.lane, d.to_batch, NULL,
           'delivery ' || d.seq || ' says ' || d.sessions || ' sessions with ' || d.events || ' outputs; its range from '
               || outbox.cursor_text(d.after_batch, d.after_key) || ' (exclusive) to ' || outbox.cursor_text(d.to_batch, d.to_key) || ' holds '
               || d.row_sessions || ' with ' || d.row_events
    FROM outbox.check_delivery_counts(coalesce(audit_reconcile.from_batch, 0), coalesce(audit_reconcile.to_batch, 9223372036854775807)) d
    WHERE (SELECT range_agg(int8range(p.from_batch, p.to_batch, '[]')) FROM outbox.output_partition p WHERE NOT p.detaching)
          @> int8range(least(d.after_batch + (d.after_key IS NULL)::integer, d.to_batch), d.to_batch, '[]')
      AND (d.sessions, d.events) IS DISTINCT FROM (d.row_sessions, d.row_events)
    UNION ALL
    SELECT 'mirror', 'error', m.epoch, m.lane, NULL, NULL, m.detail
    FROM outbox.check_mirror m
    UNION ALL
    SELECT 'parked_kept', 'critical', p.epoch, p.lane, p.batch_id, p.session_key, p.detail
    FROM outbox.check_parked_rows(coalesce(audit_reconcile.from_batch, 0), coalesce(audit_reconcile.to_batch, 9223372036854775807)) p;
END;

-- As before, but only the partitions of these rows are locked.
CREATE OR REPLACE FUNCTION outbox.requeue(session_keys text[], batch_ids bigint[], lanes integer[], lane_count integer, run_id uuid) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    new_batch bigint;
    marked bigint;
    copied bigint;
BEGIN
    PERFORM outbox.lock_writer();
    IF lane_count IS DISTINCT FROM (SELECT e.lanes FROM outbox.lane_epoch e ORDER BY e.epoch DESC LIMIT 1) THEN
        RAISE EXCEPTION 'the lanes have changed meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
    IF (0 <= ALL (lanes) AND lane_count > ALL (lanes)) IS NOT TRUE THEN
        RAISE EXCEPTION 'a lane that is none of %', lane_count USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT coalesce(max(b.batch_id), 0) + 1 INTO new_batch FROM outbox.batch b;
    -- Before the copy: once marked, no discard and no other requeue can change them.
    UPDATE outbox.parked p
    SET state = 'requeued', requeued_batch = new_batch, state_changed_at = now()
    FROM unnest(session_keys, batch_ids) AS w (session_key, batch_id)
    WHERE p.session_key = w.session_key AND p.batch_id = w.batch_id AND p.state = 'parked';
    GET DIAGNOSTICS marked = ROW_COUNT;
    IF marked <> cardinality(session_keys) THEN
        RAISE EXCEPTION '% of % rows are parked no longer', cardinality(session_keys) - marked, cardinality(session_keys)
            USING ERRCODE = 'serialization_failure';
    END IF;
    PERFORM outbox.ensure_partitions(new_batch, new_batch);
    -- EXECUTE plans it with the bounds as constants, so that only the partitions of these rows are locked.
    EXECUTE $query$
        INSERT INTO outbox.session_output (session_key, batch_id, lane, revision, session_topic_ids, session_partitions, session_starts,
            session_ends, session_started_ms, session_ended_ms, session_events, session_outputs, topics, "values", keys, headers, partitions,
            timestamps_ms)
        SELECT o.session_key, $4, w.lane, o.revision, o.session_topic_ids, o.session_partitions, o.session_starts,
            o.session_ends, o.session_started_ms, o.session_ended_ms, o.session_events, o.session_outputs, o.topics, o."values", o.keys,
            o.headers, o.partitions, o.timestamps_ms
        FROM unnest($1, $2, $3) AS w (session_key, batch_id, lane)
        JOIN outbox.session_output o ON o.session_key = w.session_key AND o.batch_id = w.batch_id
        WHERE o.batch_id >= $5 AND o.batch_id <= $6
    $query$ USING session_keys, batch_ids, lanes, new_batch, (SELECT min(b) FROM unnest(batch_ids) b), (SELECT max(b) FROM unnest(batch_ids) b);
    GET DIAGNOSTICS copied = ROW_COUNT;
    IF copied <> marked THEN
        RAISE EXCEPTION 'outbox.session_output has % of % parked rows no longer', marked - copied, marked USING ERRCODE = 'no_data_found';
    END IF;
    EXECUTE $query$
        INSERT INTO outbox.batch (batch_id, kind, generation, run_id, sessions, output_events, output_bytes, transform_fingerprint)
        SELECT $1, 'requeue', (SELECT max(g.generation) FROM outbox.generation g), $2,
               coalesce(sum(cardinality(o.session_ends)), 0), coalesce(sum(cardinality(o.topics)), 0),
               coalesce(sum((SELECT sum(length(v)) FROM unnest(o."values") v)), 0), 'requeue'
        FROM outbox.session_output o
        WHERE o.batch_id = $1
    $query$ USING new_batch, run_id;
    PERFORM pg_notify('outbox_batch', '');
    RETURN new_batch;
END $$;
