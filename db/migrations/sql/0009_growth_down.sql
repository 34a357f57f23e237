DROP TABLE outbox.removed_letters, outbox.retention;
DROP INDEX outbox.parked_lane_idx, outbox.parked_batch_idx, outbox.parked_state_idx, outbox.parked_open_idx;
ALTER TABLE outbox.lane DROP COLUMN pruned_parked;

CREATE OR REPLACE FUNCTION outbox.ensure_partitions(first_batch bigint, last_batch bigint) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    batches_per_partition CONSTANT bigint := 10000;
    partition_name text;
    made integer := 0;
BEGIN
    -- The upper bound keeps the number in a partition's name within its eight digits.
    IF (first_batch >= 1 AND last_batch BETWEEN first_batch AND first_batch + 1000000 AND last_batch < 1000000000000) IS NOT TRUE THEN
        RAISE EXCEPTION 'ensure_partitions(%, %): not a range of at most a million batches from 1 on', first_batch, last_batch
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR n IN first_batch / batches_per_partition .. last_batch / batches_per_partition LOOP
        partition_name := 'session_output_p' || lpad(n::text, 8, '0');
        CONTINUE WHEN to_regclass('outbox.' || partition_name) IS NOT NULL;
        -- A partition that 0009 made wider.
        CONTINUE WHEN EXISTS (SELECT FROM outbox.output_partition p
                              WHERE p.from_batch <= n * batches_per_partition AND p.to_batch >= n * batches_per_partition);
        -- The lock that ATTACH takes anyway, taken before the second look: of two callers, one makes the partition.
        LOCK TABLE outbox.session_output IN SHARE UPDATE EXCLUSIVE MODE;
        CONTINUE WHEN to_regclass('outbox.' || partition_name) IS NOT NULL;
        -- Made apart and attached, because CREATE TABLE ... PARTITION OF would wait for the readers of every partition and block new ones.
        -- toast_tuple_target: rows up to a page stay in it, uncompressed, since they are written once and read once.
        EXECUTE format('CREATE TABLE outbox.%I (LIKE outbox.session_output INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
                        WITH (toast_tuple_target = 8160)', partition_name);
        -- A refused duplicate shows the partition's constraint in diag.constraint_name, not the parent's: hence a name that is known.
        EXECUTE format('ALTER TABLE outbox.%I ADD CONSTRAINT %I UNIQUE (session_key, batch_id)',
                       partition_name, partition_name || '_key');
        EXECUTE format('CREATE INDEX %I ON outbox.%I (lane, batch_id, session_key)', partition_name || '_cursor_idx', partition_name);
        EXECUTE format('ALTER TABLE outbox.session_output ATTACH PARTITION outbox.%I FOR VALUES FROM (%s) TO (%s)',
                       partition_name, n * batches_per_partition, (n + 1) * batches_per_partition);
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;

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
    FROM outbox.check_stray_row s
    WHERE s.batch_id >= coalesce(audit_reconcile.from_batch, 0) AND s.batch_id <= coalesce(audit_reconcile.to_batch, 9223372036854775807)
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
    FROM outbox.check_delivery_counts d
    -- Without the greatest bigint as a bound: a range would have to end after it.
    WHERE int8range(least(d.after_batch, d.to_batch), d.to_batch, '[]')
          && CASE WHEN audit_reconcile.from_batch > audit_reconcile.to_batch THEN 'empty'
                  ELSE int8range(audit_reconcile.from_batch, nullif(audit_reconcile.to_batch, 9223372036854775807), '[]') END
      AND (SELECT range_agg(int8range(p.from_batch, p.to_batch, '[]')) FROM outbox.output_partition p WHERE NOT p.detaching)
          @> int8range(least(d.after_batch + (d.after_key IS NULL)::integer, d.to_batch), d.to_batch, '[]')
      AND (d.sessions, d.events) IS DISTINCT FROM (d.row_sessions, d.row_events)
    UNION ALL
    SELECT 'mirror', 'error', m.epoch, m.lane, NULL, NULL, m.detail
    FROM outbox.check_mirror m
    UNION ALL
    SELECT 'parked_kept', 'critical', p.epoch, p.lane, p.batch_id, p.session_key, p.detail
    FROM outbox.check_parked p
    WHERE p.batch_id >= coalesce(audit_reconcile.from_batch, 0) AND p.batch_id <= coalesce(audit_reconcile.to_batch, 9223372036854775807);
END;

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
          AND EXISTS (SELECT FROM outbox.output_partition p WHERE NOT p.detaching AND l.batch_id >= p.from_batch AND l.batch_id <= p.to_batch)
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
    WHERE b.batch_id IS NULL
       OR (b.sessions, b.output_events, b.output_bytes) IS DISTINCT FROM (coalesce(r.sessions, 0), coalesce(r.events, 0), coalesce(r.bytes, 0));
END;

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
    INSERT INTO outbox.session_output (session_key, batch_id, lane, revision, session_topic_ids, session_partitions, session_starts,
        session_ends, session_started_ms, session_ended_ms, session_events, session_outputs, topics, "values", keys, headers, partitions,
        timestamps_ms)
    SELECT o.session_key, new_batch, w.lane, o.revision, o.session_topic_ids, o.session_partitions, o.session_starts,
        o.session_ends, o.session_started_ms, o.session_ended_ms, o.session_events, o.session_outputs, o.topics, o."values", o.keys,
        o.headers, o.partitions, o.timestamps_ms
    FROM unnest(session_keys, batch_ids, lanes) AS w (session_key, batch_id, lane)
    JOIN outbox.session_output o ON o.session_key = w.session_key AND o.batch_id = w.batch_id;
    GET DIAGNOSTICS copied = ROW_COUNT;
    IF copied <> marked THEN
        RAISE EXCEPTION 'outbox.session_output has % of % parked rows no longer', marked - copied, marked USING ERRCODE = 'no_data_found';
    END IF;
    INSERT INTO outbox.batch (batch_id, kind, generation, run_id, sessions, output_events, output_bytes, transform_fingerprint)
    SELECT new_batch, 'requeue', (SELECT max(g.generation) FROM outbox.generation g), requeue.run_id,
           coalesce(sum(cardinality(o.session_ends)), 0), coalesce(sum(cardinality(o.topics)), 0),
           coalesce(sum((SELECT sum(length(v)) FROM unnest(o."values") v)), 0), 'requeue'
    FROM outbox.session_output o
    WHERE o.batch_id = new_batch;
    PERFORM pg_notify('outbox_batch', '');
    RETURN new_batch;
END $$;

DROP FUNCTION outbox.check_stray_rows(bigint, bigint), outbox.check_delivery_counts(bigint, bigint), outbox.check_parked_rows(bigint, bigint);
