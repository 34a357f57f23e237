-- The operator log: a row for each transaction in which a command changed something.
-- Login, address and time have defaults, and no service role may write them: what a row says of those is the database's word.
CREATE TABLE outbox.operation (
    operation_id bigint      GENERATED ALWAYS AS IDENTITY,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    login        text        NOT NULL DEFAULT session_user,
    client       inet                 DEFAULT inet_client_addr(),
    os_user      text        NOT NULL,
    host         text        NOT NULL,
    command      text        NOT NULL,
    arguments    jsonb       NOT NULL,
    result       jsonb       NOT NULL,
    CONSTRAINT operation_pkey PRIMARY KEY (operation_id),
    CONSTRAINT operation_named CHECK (command <> '' AND os_user <> '' AND host <> '')
);
COMMENT ON TABLE outbox.operation IS
    'The operator log: what commands changed, each row in the transaction of its change. Append-only: no service role updates or deletes.';
COMMENT ON COLUMN outbox.operation.operation_id IS 'number of the row';
COMMENT ON COLUMN outbox.operation.at IS 'when, by the clock of Postgres';
COMMENT ON COLUMN outbox.operation.login IS 'the Postgres login, whatever SET ROLE said';
COMMENT ON COLUMN outbox.operation.client IS 'address from which the connection came; NULL: a socket on the server itself';
COMMENT ON COLUMN outbox.operation.os_user IS 'user of the process, as the process says';
COMMENT ON COLUMN outbox.operation.host IS 'host of the process, as the process says';
COMMENT ON COLUMN outbox.operation.command IS 'the command, without its options';
COMMENT ON COLUMN outbox.operation.arguments IS 'what it was asked for, without secrets; session keys only as their number';
COMMENT ON COLUMN outbox.operation.result IS 'what this transaction changed';
GRANT INSERT (os_user, host, command, arguments, result) ON outbox.operation TO outbox_writer, outbox_publisher;
GRANT SELECT ON outbox.operation TO outbox_auditor;

CREATE VIEW outbox.audit_operation AS
SELECT o.operation_id, o.at, o.login, o.client, o.os_user, o.host, o.command, o.arguments, o.result
FROM outbox.operation o
ORDER BY o.operation_id DESC;
COMMENT ON VIEW outbox.audit_operation IS
    'What people had the commands change, newest first; LIMIT reads no more than it returns. Each row committed with its change.';
COMMENT ON COLUMN outbox.audit_operation.operation_id IS 'number of the row';
COMMENT ON COLUMN outbox.audit_operation.at IS 'when, by the clock of Postgres';
COMMENT ON COLUMN outbox.audit_operation.login IS 'the Postgres login';
COMMENT ON COLUMN outbox.audit_operation.client IS 'address from which the connection came; NULL: a socket on the server itself';
COMMENT ON COLUMN outbox.audit_operation.os_user IS 'user of the process, as the process says';
COMMENT ON COLUMN outbox.audit_operation.host IS 'host of the process, as the process says';
COMMENT ON COLUMN outbox.audit_operation.command IS 'the command, without its options';
COMMENT ON COLUMN outbox.audit_operation.arguments IS 'what it was asked for';
COMMENT ON COLUMN outbox.audit_operation.result IS 'what this transaction changed';
GRANT SELECT ON outbox.audit_operation TO outbox_auditor;

-- Retention works with a login of its own, which owns nothing: functions of the schema's owner drop and delete, and each checks for itself that
-- what it takes is delivered and needed by nobody.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'outbox_retention') THEN
        CREATE ROLE outbox_retention NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;  -- the migration of another database came first
END $$;

-- What a run of the release before was about to drop: a mark that nobody reads any more, or a table that is already out.
DO $$
DECLARE
    left_over record;
BEGIN
    FOR left_over IN
        SELECT c.relname, i.inhrelid IS NOT NULL AND NOT i.inhdetachpending AS attached, coalesce(i.inhdetachpending, false) AS pending
        FROM pg_class c
        LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
        WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^session_output_p\d{8}$'
          AND obj_description(c.oid, 'pg_class') = 'publisher retention: to be dropped'
          AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'session_outputs')
    LOOP
        IF left_over.attached THEN
            EXECUTE format('COMMENT ON TABLE outbox.%I IS NULL', left_over.relname);
        ELSE
            IF left_over.pending THEN
                EXECUTE format('ALTER TABLE outbox.session_output DETACH PARTITION outbox.%I FINALIZE', left_over.relname);
            END IF;
            EXECUTE format('DROP TABLE outbox.%I', left_over.relname);
        END IF;
    END LOOP;
END $$;

-- Drops a partition of the outputs, in the caller's transaction, or raises object_not_in_prerequisite_state and says who needs it.
-- Others wait for the lock on session_output for as long as this function waits for it: a fifth of a second at the most, whoever calls.
CREATE FUNCTION outbox.drop_partition(partition_name text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $$
DECLARE
    gone record;
    needed_by text;
BEGIN
    -- Any other transaction of the caller may have looked before somebody began to need the rows.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a % transaction does not see what others need by now', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
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

-- Batches with outputs that close after the beginning of what was open when the schema was upgraded to 0005, in input partitions of which
-- the job has read nothing since: with the next records there it writes the dead letters that are missing, and looks for outputs that
-- cover their events. A batch that read nothing of an input partition closed nothing there.
CREATE FUNCTION outbox.open_at_upgrade(first_batch bigint, last_batch bigint)
    RETURNS TABLE (topic_id text, partition integer, safe_offset bigint, batches bigint, first bigint, last bigint)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
WITH upgraded AS (
    SELECT coalesce(b.open_state, g.open_state) AS open_state
    FROM (SELECT generation, open_state FROM outbox.generation ORDER BY generation DESC LIMIT 1) g
    LEFT JOIN LATERAL (
        SELECT n.open_state FROM outbox.batch n WHERE n.generation = g.generation AND n.kind = 'stream' ORDER BY n.batch_id DESC LIMIT 1
    ) b ON true
)
SELECT t.topic_id, p.partition::integer, s.safe_offset, count(*), min(b.batch_id), max(b.batch_id)
FROM upgraded
CROSS JOIN LATERAL jsonb_each(upgraded.open_state) AS t (topic_id, partitions)
CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, open)
CROSS JOIN LATERAL (SELECT (p.open ->> 'safe')::bigint AS safe_offset) s
CROSS JOIN outbox.batch b
CROSS JOIN LATERAL (SELECT (b.end_offsets #>> ARRAY[t.topic_id, p.partition])::bigint AS end_offset) e
WHERE p.open ? 'upgraded'
  AND b.batch_id >= first_batch AND b.batch_id <= last_batch AND b.kind = 'stream' AND b.sessions > 0
  AND e.end_offset > s.safe_offset
  AND e.end_offset > coalesce((b.start_offsets #>> ARRAY[t.topic_id, p.partition])::bigint, 0)
GROUP BY t.topic_id, p.partition, s.safe_offset
ORDER BY t.topic_id, p.partition::integer
$$;

-- Below it every output is gone and delivered. Also below every lane that still has to deliver, should somebody have dropped a table by hand.
CREATE FUNCTION outbox.retention_floor() RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
SELECT least(
    (SELECT min(p.from_batch) FROM outbox.output_partition p),
    (SELECT min(CASE WHEN p.stopped_why = 'resuming' THEN p.from_batch - 1 ELSE p.through_batch END)
     FROM outbox.lane_position p
     WHERE p.stopped_why = 'resuming' OR NOT p.ended),
    (SELECT min(greatest(r.from_batch, r.cursor_batch)) FROM outbox.replay r WHERE r.state IN ('running', 'paused')),
    (SELECT min(p.batch_id) FROM outbox.parked p WHERE p.state = 'parked'),
    (SELECT max(b.batch_id) FROM outbox.batch b))
$$;

-- One step through the ledger: looks at the rows after `after` and deletes those that nothing names. What stays: a generation that went on from it,
-- a lane's cursor, the batch before an epoch, and each generation's newest stream row, which is a position to continue from. A savepoint holds its
-- position itself. The row right before the floor stays, too: whoever sends from the floor on continues after it.
-- Returns how many were deleted, the last one looked at, and whether the next step may find more: created_at grows with batch_id.
CREATE FUNCTION outbox.prune_batches(keep_s double precision, after_batch bigint, max_rows integer,
    OUT pruned bigint, OUT last_batch bigint, OUT more boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    floor_batch CONSTANT bigint := outbox.retention_floor();
BEGIN
    WITH looked_at AS MATERIALIZED (
        SELECT b.batch_id, b.generation, b.kind, b.created_at < now() - make_interval(secs => keep_s) AS is_old
        FROM outbox.batch b
        WHERE b.batch_id > after_batch AND b.batch_id < floor_batch - 1
        ORDER BY b.batch_id
        LIMIT max_rows
    ), newest AS MATERIALIZED (
        SELECT g.generation, n.batch_id
        FROM (SELECT DISTINCT a.generation FROM looked_at a) g
        CROSS JOIN LATERAL (
            SELECT s.batch_id FROM outbox.batch s WHERE s.generation = g.generation AND s.kind = 'stream' ORDER BY s.batch_id DESC LIMIT 1
        ) n
    ), deleted AS (
        DELETE FROM outbox.batch d
        USING looked_at a
        LEFT JOIN newest USING (generation)
        WHERE d.batch_id = a.batch_id AND a.is_old
          -- Whatever the join: nothing outside of what was looked at is read.
          AND d.batch_id > after_batch AND d.batch_id <= (SELECT max(m.batch_id) FROM looked_at m)
          AND NOT EXISTS (SELECT FROM outbox.generation g WHERE g.from_batch = a.batch_id)
          AND NOT EXISTS (SELECT FROM outbox.lane l WHERE l.cursor_batch = a.batch_id)
          AND NOT EXISTS (SELECT FROM outbox.lane_epoch e WHERE e.from_batch - 1 = a.batch_id)
          AND (a.kind <> 'stream' OR a.batch_id < newest.batch_id)
        RETURNING d.batch_id
    )
    SELECT (SELECT count(*) FROM deleted), max(a.batch_id), coalesce(count(*) = max_rows AND bool_and(a.is_old), false)
    INTO pruned, last_batch, more
    FROM looked_at a;
END $$;

-- Resumes whose deliveries are pruned and whose rows are gone on both sides: before that the audit needs them to tell what they skipped or repeated.
CREATE FUNCTION outbox.prune_resumes() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    floor_batch CONSTANT bigint := outbox.retention_floor();
BEGIN
    DELETE FROM outbox.delivery d
    USING outbox.lane l
    WHERE d.epoch = l.epoch AND d.lane = l.lane AND d.seq <= l.pruned_seq AND d.kind = 'resume'
      AND greatest(d.after_batch, d.to_batch) < floor_batch;
END $$;

-- One step through the rows that were requeued or discarded. They stay while their output or their copy is kept, because the audit needs them.
-- The lane counts them: Kafka's progress records do, too.
CREATE FUNCTION outbox.prune_parked(keep_s double precision, max_rows integer, OUT pruned bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    floor_batch CONSTANT bigint := outbox.retention_floor();
BEGIN
    WITH deleted AS (
        DELETE FROM outbox.parked d
        WHERE (d.batch_id, d.session_key) IN (
            SELECT p.batch_id, p.session_key FROM outbox.parked p
            WHERE p.batch_id < floor_batch AND p.state <> 'parked' AND coalesce(p.requeued_batch, 0) < floor_batch
              AND p.state_changed_at < now() - make_interval(secs => keep_s)
            ORDER BY p.batch_id, p.session_key
            LIMIT max_rows)
        RETURNING d.epoch, d.lane
    ), counted AS (
        UPDATE outbox.lane l SET pruned_parked = l.pruned_parked + n.rows
        FROM (SELECT d.epoch, d.lane, count(*) AS rows FROM deleted d GROUP BY d.epoch, d.lane) n
        WHERE l.epoch = n.epoch AND l.lane = n.lane
    )
    SELECT count(*) INTO pruned FROM deleted;
END $$;

-- Lane epochs before the newest whose rows are gone, whose every lane came to the end, and which ended long ago: the oldest ones, so that what is
-- left has no hole. With their lanes and what is left of their deliveries. One with parked rows waits until these are gone.
CREATE FUNCTION outbox.prune_epochs(keep_s double precision, OUT pruned integer[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    floor_batch CONSTANT bigint := outbox.retention_floor();
BEGIN
    WITH ended AS MATERIALIZED (
        SELECT e.epoch
        FROM outbox.epoch_range e
        WHERE e.to_batch < floor_batch
          AND (SELECT min(n.created_at) FROM outbox.lane_epoch n WHERE n.epoch > e.epoch) < now() - make_interval(secs => keep_s)
          AND e.epoch < ALL (SELECT p.epoch FROM outbox.lane_position p WHERE NOT p.ended OR p.stopped_why IS NOT NULL OR p.held)
          AND (e.epoch < (SELECT min(p.epoch) FROM outbox.parked p)) IS NOT FALSE
    ), deliveries AS (
        DELETE FROM outbox.delivery d USING ended e WHERE d.epoch = e.epoch
    ), lanes AS (
        DELETE FROM outbox.lane l USING ended e WHERE l.epoch = e.epoch RETURNING l.epoch
    )
    SELECT coalesce(array_agg(e.epoch ORDER BY e.epoch), '{}') INTO pruned FROM ended e;
    DELETE FROM outbox.lane_epoch d WHERE d.epoch = ANY (pruned);
END $$;

-- One step through the publisher's processes that have ended.
CREATE FUNCTION outbox.prune_processes(keep_s double precision, max_rows integer, OUT pruned bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    DELETE FROM outbox.publisher_process d
    WHERE d.process_id IN (
        SELECT p.process_id FROM outbox.publisher_process p
        WHERE coalesce(p.ended_at, p.alive_until) < now() - make_interval(secs => keep_s)
        LIMIT max_rows);
    GET DIAGNOSTICS pruned = ROW_COUNT;
END $$;

-- One step through the session keys of replays that have ended, and then through the replays.
CREATE FUNCTION outbox.prune_replay_keys(keep_s double precision, max_rows integer, OUT pruned bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    DELETE FROM outbox.replay_key d
    WHERE (d.replay_id, d.session_key) IN (
        SELECT k.replay_id, k.session_key
        FROM outbox.replay r
        JOIN outbox.replay_key k USING (replay_id)
        WHERE r.state IN ('done', 'cancelled') AND r.state_changed_at < now() - make_interval(secs => keep_s)
        LIMIT max_rows);
    GET DIAGNOSTICS pruned = ROW_COUNT;
END $$;

CREATE FUNCTION outbox.prune_replays(keep_s double precision, max_rows integer, OUT pruned bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    DELETE FROM outbox.replay d
    WHERE d.replay_id IN (
        SELECT r.replay_id FROM outbox.replay r
        WHERE r.state IN ('done', 'cancelled') AND r.state_changed_at < now() - make_interval(secs => keep_s)
          AND NOT EXISTS (SELECT FROM outbox.replay_key k WHERE k.replay_id = r.replay_id)
        LIMIT max_rows);
    GET DIAGNOSTICS pruned = ROW_COUNT;
END $$;

-- One step through the operator log. Thirty days of it stay, whatever is asked for: whoever takes retention's login over cannot hide that.
CREATE FUNCTION outbox.prune_operations(keep_s double precision, max_rows integer, OUT pruned bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    DELETE FROM outbox.operation d
    WHERE d.operation_id IN (
        SELECT o.operation_id FROM outbox.operation o
        WHERE o.at < now() - make_interval(secs => greatest(keep_s, 2592000))
        ORDER BY o.operation_id
        LIMIT max_rows);
    GET DIAGNOSTICS pruned = ROW_COUNT;
END $$;

-- One step through a lane's deliveries: deletes the oldest, up to the first one that must stay, so that what is left is a chain that begins after
-- `lane.pruned_seq`. The newest always stays, and what a lane that was set back had already delivered. Resumes stay: `resumes` deletes them.
-- Returns how many were deleted, and whether the next step may find more.
-- Bounds are scalar subqueries: a join leaves the planner free to walk over all that former steps deleted.
-- An hour of them stays, whatever is asked for.
CREATE FUNCTION outbox.prune_deliveries(of_epoch integer, of_lane integer, keep_s double precision, max_rows integer,
    OUT pruned bigint, OUT more boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    WITH looked_at AS MATERIALIZED (
        SELECT d.seq,
               d.committed_at >= now() - make_interval(secs => greatest(keep_s, 3600))
                   OR d.seq = (SELECT max(n.seq) FROM outbox.delivery n WHERE n.epoch = of_epoch AND n.lane = of_lane)
                   OR d.to_batch > (SELECT l.cursor_batch FROM outbox.lane l WHERE l.epoch = of_epoch AND l.lane = of_lane) AS stays
        FROM outbox.delivery d
        WHERE d.epoch = of_epoch AND d.lane = of_lane
          AND d.seq > (SELECT l.pruned_seq FROM outbox.lane l WHERE l.epoch = of_epoch AND l.lane = of_lane)
        ORDER BY d.seq
        LIMIT max_rows
    ), bounds AS MATERIALIZED (
        SELECT min(a.seq) AS first_seq, coalesce(min(a.seq) FILTER (WHERE a.stays) - 1, max(a.seq)) AS pruned_seq,
               count(*) = max_rows AND NOT bool_or(a.stays) AS more
        FROM looked_at a
    ), moved AS (
        UPDATE outbox.lane l
        SET pruned_seq = b.pruned_seq
        FROM bounds b
        WHERE l.epoch = of_epoch AND l.lane = of_lane AND l.pruned_seq < b.pruned_seq
    ), deleted AS (
        DELETE FROM outbox.delivery d
        WHERE d.epoch = of_epoch AND d.lane = of_lane AND d.kind = 'delivery'
          AND d.seq >= (SELECT b.first_seq FROM bounds b) AND d.seq <= (SELECT b.pruned_seq FROM bounds b)
        RETURNING d.seq
    )
    SELECT (SELECT count(*) FROM deleted), coalesce(b.more, false) INTO pruned, more FROM bounds b;
END $$;

-- One step through the letters by number, those that are open or the others: removes what is past the age that is allowed, and then the oldest
-- until `excess` bytes are gone. Returns how many went, their bytes, the last number looked at, and whether the next step may find more.
-- For the two functions below, which tell apart what may be removed by whom.
CREATE FUNCTION outbox.remove_letters(is_open boolean, keep_s double precision, after_id bigint, excess bigint, max_rows integer,
    OUT removed bigint, OUT freed bigint, OUT last_id bigint, OUT more boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    WITH looked_at AS MATERIALIZED (
        SELECT d.dead_letter_id,
               coalesce(CASE d.state WHEN 'open' THEN d.created_at ELSE d.state_changed_at END
                            < now() - make_interval(secs => keep_s::double precision), false) AS is_old,
               200 + pg_column_size(d.detail) + pg_column_size(d.event_values) + pg_column_size(d.event_offsets) + pg_column_size(d.event_times_ms)
                   + coalesce(pg_column_size(d.event_types), 0) AS bytes
        FROM outbox.dead_letter d
        WHERE d.dead_letter_id > after_id AND (d.state = 'open') = is_open
        ORDER BY d.dead_letter_id
        LIMIT max_rows
    ), chosen AS MATERIALIZED (
        SELECT a.dead_letter_id, a.bytes
        FROM (
            SELECT l.*, coalesce(sum(l.bytes) OVER (ORDER BY l.dead_letter_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
            FROM looked_at l
        ) a
        WHERE a.is_old OR a.before < excess
    ), deleted AS (
        DELETE FROM outbox.dead_letter d
        USING chosen c
        -- The state again: somebody may have changed it since it was looked at.
        WHERE d.dead_letter_id = c.dead_letter_id AND (d.state = 'open') = is_open
        RETURNING d.dead_letter_id, d.reason, d.state, d.event_count, d.created_at, c.bytes
    ), counted AS (
        INSERT INTO outbox.removed_letters AS r (reason, state, letters, events, newest_id, newest_at)
        SELECT d.reason, d.state, count(*), sum(d.event_count), max(d.dead_letter_id), max(d.created_at) FROM deleted d GROUP BY d.reason, d.state
        ON CONFLICT ON CONSTRAINT removed_letters_pkey DO UPDATE
        SET letters = r.letters + excluded.letters, events = r.events + excluded.events, newest_id = greatest(r.newest_id, excluded.newest_id),
            newest_at = greatest(r.newest_at, excluded.newest_at), removed_at = now()
    )
    SELECT (SELECT count(*) FROM deleted), (SELECT coalesce(sum(d.bytes), 0)::bigint FROM deleted d), coalesce(max(a.dead_letter_id), 0),
           count(*) = max_rows
    INTO removed, freed, last_id, more
    FROM looked_at a;
END $$;

CREATE FUNCTION outbox.remove_closed_letters(keep_s double precision, after_id bigint, excess bigint, max_rows integer,
    OUT removed bigint, OUT freed bigint, OUT last_id bigint, OUT more boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    SELECT r.removed, r.freed, r.last_id, r.more INTO removed, freed, last_id, more
    FROM outbox.remove_letters(false, keep_s, after_id, excess, max_rows) r;
END $$;

-- Open letters are undelivered input, so no role may: grant it to retention's login where [retention] drop_open_letters is on.
CREATE FUNCTION outbox.remove_open_letters(keep_s double precision, after_id bigint, excess bigint, max_rows integer,
    OUT removed bigint, OUT freed bigint, OUT last_id bigint, OUT more boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    SELECT r.removed, r.freed, r.last_id, r.more INTO removed, freed, last_id, more
    FROM outbox.remove_letters(true, keep_s, after_id, excess, max_rows) r;
END $$;

-- Closed and open letters, the bytes of their rows as they are stored, and how many are past the age that is allowed. Reads every row once.
CREATE FUNCTION outbox.letters_kept(keep_s double precision,
    OUT closed bigint, OUT open bigint, OUT bytes bigint, OUT old_closed bigint, OUT old_open bigint)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
SELECT count(*) FILTER (WHERE k.state <> 'open'), count(*) FILTER (WHERE k.state = 'open'),
       coalesce(sum(k.bytes), 0)::bigint,
       count(*) FILTER (WHERE k.is_old AND k.state <> 'open'), count(*) FILTER (WHERE k.is_old AND k.state = 'open')
FROM (
    SELECT d.state, coalesce(CASE d.state WHEN 'open' THEN d.created_at ELSE d.state_changed_at END
                                 < now() - make_interval(secs => keep_s), false) AS is_old,
           200 + pg_column_size(d.detail) + pg_column_size(d.event_values) + pg_column_size(d.event_offsets) + pg_column_size(d.event_times_ms)
               + coalesce(pg_column_size(d.event_types), 0) AS bytes
    FROM outbox.dead_letter d
) k
$$;

-- How a run of retention ended, for the alert.
CREATE FUNCTION outbox.end_retention(failure text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
UPDATE outbox.retention SET ended_at = clock_timestamp(), failed = failure
$$;

-- What `publisher parked discard` puts away; returns how many rows. The one way to change a parked row beside `requeue`.
CREATE FUNCTION outbox.discard_parked(last_batch bigint, reasons text[], batch_ids bigint[], session_keys text[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    discarded bigint;
BEGIN
    UPDATE outbox.parked p
    SET state = 'discarded', state_changed_at = now()
    WHERE p.state = 'parked'
      AND p.batch_id <= last_batch
      AND (reasons IS NULL OR p.reason = ANY (reasons))
      AND (batch_ids IS NULL OR (p.batch_id, p.session_key) IN (SELECT * FROM unnest(batch_ids, session_keys)));
    GET DIAGNOSTICS discarded = ROW_COUNT;
    RETURN discarded;
END $$;

-- Functions are everybody's until they are taken away. Those of the first line are of 0009.
REVOKE ALL ON FUNCTION
    outbox.check_stray_rows(bigint, bigint), outbox.check_delivery_counts(bigint, bigint), outbox.check_parked_rows(bigint, bigint),
    outbox.retention_floor(), outbox.open_at_upgrade(bigint, bigint), outbox.drop_partition(text),
    outbox.prune_batches(double precision, bigint, integer), outbox.prune_resumes(), outbox.prune_parked(double precision, integer),
    outbox.prune_epochs(double precision), outbox.prune_processes(double precision, integer),
    outbox.prune_replay_keys(double precision, integer), outbox.prune_replays(double precision, integer),
    outbox.prune_operations(double precision, integer), outbox.prune_deliveries(integer, integer, double precision, integer),
    outbox.remove_letters(boolean, double precision, bigint, bigint, integer),
    outbox.remove_closed_letters(double precision, bigint, bigint, integer),
    outbox.remove_open_letters(double precision, bigint, bigint, integer), outbox.letters_kept(double precision),
    outbox.end_retention(text), outbox.discard_parked(bigint, text[], bigint[], text[])
FROM PUBLIC;
GRANT USAGE ON SCHEMA outbox TO outbox_retention;
GRANT EXECUTE ON FUNCTION
    outbox.server_identity(), outbox.ensure_partitions(bigint, bigint), outbox.open_at_upgrade(bigint, bigint), outbox.drop_partition(text),
    outbox.prune_batches(double precision, bigint, integer), outbox.prune_resumes(), outbox.prune_parked(double precision, integer),
    outbox.prune_epochs(double precision), outbox.prune_processes(double precision, integer),
    outbox.prune_replay_keys(double precision, integer), outbox.prune_replays(double precision, integer),
    outbox.prune_operations(double precision, integer), outbox.prune_deliveries(integer, integer, double precision, integer),
    outbox.remove_closed_letters(double precision, bigint, bigint, integer), outbox.letters_kept(double precision), outbox.end_retention(text)
TO outbox_retention;
GRANT EXECUTE ON FUNCTION outbox.open_at_upgrade(bigint, bigint) TO outbox_publisher, outbox_auditor;
GRANT EXECUTE ON FUNCTION outbox.letters_kept(double precision) TO outbox_auditor;
-- What its decisions are made of: positions, no payload and no session key.
-- `open_state` has keys, of sessions that were too large: `open_at_upgrade` looks at it.
GRANT SELECT ON outbox.alembic_version, outbox.retention, outbox.lane_position, outbox.output_partition TO outbox_retention;
GRANT SELECT (batch_id, created_at) ON outbox.batch TO outbox_retention;
GRANT SELECT (batch_id, state) ON outbox.parked TO outbox_retention;
GRANT SELECT (replay_id, state, from_batch, to_batch, cursor_batch) ON outbox.replay TO outbox_retention;
GRANT SELECT (epoch, lane) ON outbox.lane TO outbox_retention;
GRANT INSERT (os_user, host, command, arguments, result) ON outbox.operation TO outbox_retention;

-- What the audit rests on is append-only for the publisher, and times are the database's word: rows come by INSERT of these columns and change
-- or go by the functions alone.
REVOKE INSERT, DELETE ON outbox.delivery FROM outbox_publisher;
GRANT INSERT (epoch, lane, seq, after_batch, after_key, to_batch, to_key, sessions, events, kafka_offsets, kind, note)
    ON outbox.delivery TO outbox_publisher;
REVOKE INSERT, UPDATE (state, state_changed_at) ON outbox.parked FROM outbox_publisher;
GRANT INSERT (session_key, batch_id, epoch, lane, lease_token, after_seq, reason, detail) ON outbox.parked TO outbox_publisher;
REVOKE UPDATE (pruned_seq) ON outbox.lane FROM outbox_publisher;
GRANT EXECUTE ON FUNCTION outbox.prune_deliveries(integer, integer, double precision, integer),
    outbox.discard_parked(bigint, text[], bigint[], text[]) TO outbox_publisher;
