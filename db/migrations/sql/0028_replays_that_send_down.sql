CREATE OR REPLACE FUNCTION outbox.drop_partition(partition_name text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $$
DECLARE
    gone record;
    needed_by text;
BEGIN
    PERFORM outbox.require_read_committed();
    -- A replay or a resume that begins to need old rows holds this lock shared.
    IF NOT pg_try_advisory_xact_lock(hashtextextended('outbox.retention', 0)) THEN
        RAISE EXCEPTION 'outputs are needed as they are for now, or another retention runs' USING ERRCODE = 'object_in_use';
    END IF;
    SELECT p.from_batch, p.to_batch INTO gone FROM outbox.output_partition p WHERE p.name = partition_name AND NOT p.detaching;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'outbox.% is no partition of outbox.session_output', partition_name USING ERRCODE = 'undefined_table';
    END IF;
    needed_by := CASE
        WHEN gone.to_batch >= (SELECT coalesce(max(b.batch_id), 0) FROM outbox.batch b) THEN 'batches may still come into it'
        -- As `needed_by` in publisher/retention/plan.py, which also says what to do about each.
        WHEN EXISTS (
            SELECT FROM outbox.lane_position p
            WHERE greatest(p.from_batch, gone.from_batch) <= least(p.to_batch, gone.to_batch)
              AND CASE WHEN p.stopped_why = 'resuming' THEN p.from_batch - 1 ELSE p.through_batch END < least(p.to_batch, gone.to_batch)
        ) THEN 'a lane has not delivered all of it'
        WHEN EXISTS (
            SELECT FROM outbox.parked p WHERE p.state = 'parked' AND p.batch_id >= gone.from_batch AND p.batch_id <= gone.to_batch
        ) THEN 'rows of it are parked'
        WHEN EXISTS (
            SELECT FROM outbox.replay r
            WHERE r.state IN ('running', 'paused')
              AND greatest(r.from_batch, r.cursor_batch, gone.from_batch) <= least(r.to_batch, gone.to_batch)
        ) THEN 'a replay still reads it'
        WHEN EXISTS (SELECT FROM outbox.open_at_upgrade(gone.from_batch, gone.to_batch))
            THEN 'the job''s first batch after the upgrade to 0005 looks at it'
    END;
    IF needed_by IS NOT NULL THEN
        RAISE EXCEPTION 'outbox.% stays: %', partition_name, needed_by USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    EXECUTE format('ALTER TABLE outbox.session_output DETACH PARTITION outbox.%I', partition_name);
    EXECUTE format('DROP TABLE outbox.%I', partition_name);
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

CREATE OR REPLACE FUNCTION outbox.hold_for_erasure() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    PERFORM pg_advisory_xact_lock(hashtextextended('outbox.retention', 0));
    PERFORM FROM outbox.replay r WHERE r.state IN ('running', 'paused') ORDER BY r.replay_id FOR NO KEY UPDATE;
END $$;

REVOKE SELECT (lease_until) ON outbox.replay FROM outbox_retention;
