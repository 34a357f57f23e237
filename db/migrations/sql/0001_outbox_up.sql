-- The outbox: the contract between the Spark job (writer) and the publisher. db/README.md explains every relation.
-- The schema itself is made by env.py, because alembic's version table lives in it too.

DO $$
BEGIN
    IF current_setting('server_version_num')::integer < 150000 THEN
        RAISE EXCEPTION 'this is Postgres %: the outbox needs 15 or newer', current_setting('server_version')
            USING ERRCODE = 'feature_not_supported';
    END IF;
    IF pg_catalog.getdatabaseencoding() <> 'UTF8' THEN
        RAISE EXCEPTION 'database % has encoding %: the outbox needs UTF8 (createdb --encoding=UTF8 --template=template0)',
            current_database(), pg_catalog.getdatabaseencoding() USING ERRCODE = 'feature_not_supported';
    END IF;
END $$;

-- Which server this is. The services compare it with outbox.identity, so that a restore elsewhere or a promotion is noticed.
-- The timeline is the one now written to: pg_control_checkpoint() shows the old one for a while after a promotion.
-- SECURITY DEFINER, so that the roles can call it where pg_control_system() was taken from PUBLIC.
CREATE FUNCTION outbox.server_identity(OUT system_identifier bigint, OUT timeline integer)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.system_identifier,
           CASE WHEN pg_is_in_recovery() THEN (pg_control_checkpoint()).timeline_id
                ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer END
    FROM pg_control_system() s
$$;

-- The value as JSON, or NULL where it is not UTF-8 JSON that jsonb can hold (no NUL, no number out of range, not too deep).
-- Not PARALLEL SAFE: an exception block is a subtransaction, which Postgres 15 and 16 refuse in parallel mode.
CREATE FUNCTION outbox.try_json(value bytea) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN convert_from(value, 'UTF8')::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END $$;

-- For a CHECK: the sum of an array's elements.
CREATE FUNCTION outbox.total("values" integer[]) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    value integer;
    total bigint := 0;
BEGIN
    FOREACH value IN ARRAY "values" LOOP
        total := total + value;
    END LOOP;
    RETURN total;
END $$;

-- One row: which outbox this is, and on which Postgres it was made.
CREATE TABLE outbox.identity (
    singleton               boolean     NOT NULL DEFAULT true,
    outbox_uuid             uuid        NOT NULL DEFAULT gen_random_uuid(),
    system_identifier       bigint      NOT NULL,
    timeline                integer     NOT NULL,
    cluster_id              text,                      -- Kafka cluster of the outputs, recorded by the first publisher
    transactional_id_prefix text,                      -- recorded by the first publisher
    output_topic_ids        jsonb       NOT NULL DEFAULT '{}',  -- {topic name: topic id}, recorded at a topic's first produce
    created_at              timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT identity_pkey PRIMARY KEY (singleton),
    CONSTRAINT identity_one_row CHECK (singleton),
    CONSTRAINT identity_output_topic_ids_object CHECK (jsonb_typeof(output_topic_ids) = 'object')
);

INSERT INTO outbox.identity (system_identifier, timeline)
SELECT system_identifier, timeline FROM outbox.server_identity();

-- One row: the run that may write, read and changed under the writer lock: the advisory lock hashtextextended('outbox.writer', 0). The recorded
-- backend shows whether the owner lives; its heartbeat changes this row without that lock.
CREATE TABLE outbox.writer (
    singleton     boolean     NOT NULL DEFAULT true,
    run_id        uuid,
    host          text,
    pid           integer,
    backend_pid   integer,
    backend_start timestamptz,     -- NULL where the role may not see it; then the pid must do
    heartbeat_at  timestamptz,
    started_at    timestamptz,
    CONSTRAINT writer_pkey PRIMARY KEY (singleton),
    CONSTRAINT writer_one_row CHECK (singleton),
    CONSTRAINT writer_whole CHECK (num_nulls(run_id, host, pid, backend_pid, heartbeat_at, started_at) IN (0, 6))
);

INSERT INTO outbox.writer DEFAULT VALUES;

-- A period in which one Spark checkpoint is in force.
CREATE TABLE outbox.generation (
    generation           integer     NOT NULL,
    directory_token      text        NOT NULL,
    start_offsets        jsonb       NOT NULL,   -- {topic id: {partition: offset}}
    high_water           jsonb       NOT NULL,
    topics               jsonb       NOT NULL,   -- {topic id: topic name} of the input at that time
    reason               text        NOT NULL,
    policy               text        NOT NULL,
    revision             integer     NOT NULL DEFAULT 0,
    assembly             jsonb       NOT NULL,   -- the settings that decide what a session is
    assembly_fingerprint text        NOT NULL,
    run_id               uuid        NOT NULL,
    created_at           timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT generation_pkey PRIMARY KEY (generation),
    CONSTRAINT generation_directory_token_key UNIQUE (directory_token),
    CONSTRAINT generation_positive CHECK (generation > 0),
    CONSTRAINT generation_reason_known CHECK (reason IN ('first', 'checkpoint_lost', 'savepoint', 'rescale', 'outbox_behind',
        'new_topic', 'data_loss', 'changed_assembly', 'requested')),
    CONSTRAINT generation_policy_known CHECK (policy IN ('skip', 'reissue')),
    CONSTRAINT generation_revision_natural CHECK (revision >= 0),
    CONSTRAINT generation_objects CHECK (jsonb_typeof(start_offsets) = 'object' AND jsonb_typeof(high_water) = 'object'
        AND jsonb_typeof(topics) = 'object' AND jsonb_typeof(assembly) = 'object')
);

-- The ledger: the commit log that the publisher follows. Written last in the transaction that holds the batch's rows.
CREATE TABLE outbox.batch (
    batch_id              bigint      NOT NULL,
    kind                  text        NOT NULL,
    generation            integer     NOT NULL,
    spark_batch           bigint,
    part                  smallint    NOT NULL DEFAULT 0,
    commit_id             uuid        NOT NULL DEFAULT gen_random_uuid(),
    run_id                uuid        NOT NULL,
    start_offsets         jsonb,
    end_offsets           jsonb,
    done_offsets          jsonb,
    safe_offsets          jsonb,
    input_events          bigint      NOT NULL DEFAULT 0,
    sessions              integer     NOT NULL DEFAULT 0,
    output_events         bigint      NOT NULL DEFAULT 0,
    dead_letters          integer     NOT NULL DEFAULT 0,
    duplicate_events      integer     NOT NULL DEFAULT 0,
    skipped_sessions      integer     NOT NULL DEFAULT 0,
    content_hash          bytea       NOT NULL,
    transform_fingerprint text        NOT NULL,
    recomputed_at         timestamptz,                    -- Spark ran this batch again after its commit here
    recomputed_hash       bytea,                          -- what it computed then, where it differed
    created_at            timestamptz NOT NULL DEFAULT clock_timestamp(),  -- under the writer lock: grows with batch_id
    CONSTRAINT batch_pkey PRIMARY KEY (batch_id),
    CONSTRAINT batch_stream_position_key UNIQUE (generation, spark_batch, part),
    CONSTRAINT batch_generation_fkey FOREIGN KEY (generation) REFERENCES outbox.generation (generation),
    CONSTRAINT batch_positive CHECK (batch_id > 0 AND part >= 0),
    CONSTRAINT batch_kind_known CHECK (kind IN ('stream', 'retry', 'requeue')),
    CONSTRAINT batch_stream_offsets CHECK (
        num_nulls(spark_batch, start_offsets, end_offsets, done_offsets, safe_offsets) = CASE kind WHEN 'stream' THEN 0 ELSE 5 END),
    CONSTRAINT batch_offsets_objects CHECK (jsonb_typeof(start_offsets) = 'object' AND jsonb_typeof(end_offsets) = 'object'
        AND jsonb_typeof(done_offsets) = 'object' AND jsonb_typeof(safe_offsets) = 'object'),
    CONSTRAINT batch_counts_natural CHECK (
        least(spark_batch, input_events, sessions, output_events, dead_letters, duplicate_events, skipped_sessions) >= 0),
    CONSTRAINT batch_content_hash_length CHECK (length(content_hash) = 32),
    CONSTRAINT batch_recomputed_whole CHECK (recomputed_hash IS NULL OR (recomputed_at IS NOT NULL AND length(recomputed_hash) = 32))
);

CREATE INDEX batch_created_at_idx ON outbox.batch (created_at);

-- All outputs of one session_key in one batch, in the order in which its sessions closed. Never updated.
CREATE TABLE outbox.session_output (
    session_key        text COLLATE "C" NOT NULL,
    batch_id           bigint      NOT NULL,
    lane               integer     NOT NULL,
    revision           integer     NOT NULL,
    -- parallel arrays, one element a session
    session_topic_ids  text[]      NOT NULL,
    session_partitions integer[]   NOT NULL,
    session_starts     bigint[]    NOT NULL,   -- offset of the start event
    session_ends       bigint[]    NOT NULL,   -- offset of the end event: the closing position
    session_started_ms bigint[]    NOT NULL,   -- event time, milliseconds since 1970
    session_ended_ms   bigint[]    NOT NULL,
    session_events     integer[]   NOT NULL,   -- input events of the session
    session_outputs    integer[]   NOT NULL,   -- output events of the session
    -- parallel arrays, one element an output event, session after session
    topics             text[]      NOT NULL,
    "values"           bytea[]     NOT NULL,   -- a NULL element is a tombstone
    keys               bytea[],                -- NULL: every event has the session key; a NULL element likewise
    headers            jsonb[],                -- NULL: no event has any; an element is [[name, text or {"base64": ...} or null], ...]
    partitions         integer[],              -- NULL: the partitioner decides; a NULL element likewise
    timestamps_ms      bigint[],               -- NULL: the time of sending; a NULL element likewise
    CONSTRAINT session_output_key UNIQUE (session_key, batch_id),
    CONSTRAINT session_output_key_bounds CHECK (session_key <> '' AND octet_length(session_key) <= 1024),
    CONSTRAINT session_output_natural CHECK (lane >= 0 AND revision >= 0),
    CONSTRAINT session_output_sessions_parallel CHECK (
        cardinality(session_ends) > 0
        AND cardinality(session_topic_ids) = cardinality(session_ends) AND cardinality(session_partitions) = cardinality(session_ends)
        AND cardinality(session_starts) = cardinality(session_ends) AND cardinality(session_started_ms) = cardinality(session_ends)
        AND cardinality(session_ended_ms) = cardinality(session_ends) AND cardinality(session_events) = cardinality(session_ends)
        AND cardinality(session_outputs) = cardinality(session_ends)),
    -- IS TRUE refuses NULL elements as well
    CONSTRAINT session_output_sessions_natural CHECK (
        (0 <= ALL (session_partitions)) IS TRUE AND (0 <= ALL (session_starts)) IS TRUE AND (0 <= ALL (session_ends)) IS TRUE
        AND (1 <= ALL (session_events)) IS TRUE AND (0 <= ALL (session_outputs)) IS TRUE AND ('' <> ALL (session_topic_ids)) IS TRUE
        AND array_position(session_started_ms, NULL) IS NULL AND array_position(session_ended_ms, NULL) IS NULL),
    -- Which output belongs to which session: a wrong count would give wrong outbox-ids. One session, the usual case, needs no call.
    CONSTRAINT session_output_counts_agree CHECK (
        CASE cardinality(session_outputs) WHEN 1 THEN session_outputs[1] ELSE outbox.total(session_outputs) END
            IS NOT DISTINCT FROM cardinality(topics)),
    CONSTRAINT session_output_topics_named CHECK (('' <> ALL (topics)) IS TRUE),
    CONSTRAINT session_output_events_parallel CHECK (
        cardinality("values") = cardinality(topics) AND coalesce(cardinality(keys), cardinality(topics)) = cardinality(topics)
        AND coalesce(cardinality(headers), cardinality(topics)) = cardinality(topics)
        AND coalesce(cardinality(partitions), cardinality(topics)) = cardinality(topics)
        AND coalesce(cardinality(timestamps_ms), cardinality(topics)) = cardinality(topics))
) PARTITION BY RANGE (batch_id);

-- The publisher's cursor: one lane's rows in (batch_id, session_key) order without a sort.
CREATE INDEX session_output_cursor_idx ON outbox.session_output (lane, batch_id, session_key);

-- Makes the partitions that hold batch_id first_batch to last_batch; returns how many were new. To be called in a transaction
-- of its own, ahead of need. Readers and writers of the other partitions go on meanwhile.
CREATE FUNCTION outbox.ensure_partitions(first_batch bigint, last_batch bigint) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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

SELECT outbox.ensure_partitions(1, 19999);

-- Input that made no output, with the events kept.
CREATE TABLE outbox.dead_letter (
    dead_letter_id   bigint      GENERATED ALWAYS AS IDENTITY,
    topic_id         text        NOT NULL,
    topic            text        NOT NULL,
    partition        integer     NOT NULL,
    first_offset     bigint      NOT NULL,
    last_offset      bigint      NOT NULL,
    closing_offset   bigint      NOT NULL,
    reason           text        NOT NULL,
    revision         integer     NOT NULL DEFAULT 0,
    generation       integer     NOT NULL,
    batch_id         bigint      NOT NULL,          -- the ledger row it was written with
    session_key      text COLLATE "C",
    detail           text        NOT NULL,
    event_count      integer     NOT NULL,          -- may exceed the events kept
    event_offsets    bigint[]    NOT NULL,
    event_times_ms   bigint[]    NOT NULL,
    event_values     bytea[]     NOT NULL,
    state            text        NOT NULL DEFAULT 'open',
    resolved_batch   bigint,
    state_changed_at timestamptz NOT NULL DEFAULT now(),
    created_at       timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT dead_letter_pkey PRIMARY KEY (dead_letter_id),
    CONSTRAINT dead_letter_identity_key UNIQUE (topic_id, partition, first_offset, reason, revision),
    CONSTRAINT dead_letter_generation_fkey FOREIGN KEY (generation) REFERENCES outbox.generation (generation),
    CONSTRAINT dead_letter_reason_known CHECK (reason IN ('malformed', 'no_start', 'restarted', 'timed_out', 'too_large', 'transform_failed')),
    CONSTRAINT dead_letter_state_known CHECK (state IN ('open', 'resolved', 'discarded')),
    CONSTRAINT dead_letter_resolved_by CHECK ((state = 'resolved') = (resolved_batch IS NOT NULL)),
    CONSTRAINT dead_letter_natural CHECK (least(partition, first_offset, revision) >= 0 AND batch_id > 0 AND event_count > 0),
    CONSTRAINT dead_letter_offsets_ordered CHECK (first_offset <= last_offset AND last_offset <= closing_offset),
    CONSTRAINT dead_letter_events_parallel CHECK (
        cardinality(event_times_ms) = cardinality(event_offsets) AND cardinality(event_values) = cardinality(event_offsets)
        AND event_count >= cardinality(event_offsets))
);

CREATE INDEX dead_letter_open_idx ON outbox.dead_letter (reason, created_at) WHERE state = 'open';
CREATE INDEX dead_letter_session_key_idx ON outbox.dead_letter (session_key);

-- The last summary of every bucket of a generation: a bucket without new data sends none, so the sink keeps it here.
CREATE TABLE outbox.bucket (
    generation    integer NOT NULL,
    bucket        integer NOT NULL,
    batch_id      bigint  NOT NULL,
    open_sessions integer NOT NULL,
    open_events   bigint  NOT NULL,
    open_bytes    bigint  NOT NULL,
    state_bytes   bigint  NOT NULL,
    oldest_open   jsonb   NOT NULL,   -- {topic id: {partition: offset of the first event of the oldest open session}}
    CONSTRAINT bucket_pkey PRIMARY KEY (generation, bucket),
    CONSTRAINT bucket_generation_fkey FOREIGN KEY (generation) REFERENCES outbox.generation (generation),
    CONSTRAINT bucket_counts_natural CHECK (least(bucket, open_sessions, open_events, open_bytes, state_bytes) >= 0 AND batch_id > 0),
    CONSTRAINT bucket_oldest_open_object CHECK (jsonb_typeof(oldest_open) = 'object')
);

-- A change of the lane count. Epoch e holds the batches from its from_batch up to the next epoch's.
CREATE TABLE outbox.lane_epoch (
    epoch      integer     NOT NULL,
    from_batch bigint      NOT NULL,
    lanes      integer     NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT lane_epoch_pkey PRIMARY KEY (epoch),
    CONSTRAINT lane_epoch_from_batch_key UNIQUE (from_batch),
    CONSTRAINT lane_epoch_positive CHECK (epoch > 0 AND from_batch > 0 AND lanes BETWEEN 1 AND 1024)
);

-- A lane's lease (liveness only; Kafka fences) and the mirror of its progress, written after the Kafka commit.
CREATE TABLE outbox.lane (
    epoch              integer     NOT NULL,
    lane               integer     NOT NULL,
    lease_token        bigint      NOT NULL DEFAULT 0,   -- grows with every change of holder
    lease_holder       text,
    lease_until        timestamptz,
    lease_backend_pid  integer,
    lease_backend_start timestamptz,                     -- NULL where the role may not see it
    seq                bigint      NOT NULL DEFAULT 0,   -- Kafka transactions of this lane, 0 before the first
    cursor_batch       bigint      NOT NULL DEFAULT 0,
    cursor_key         text COLLATE "C",                 -- NULL: all of cursor_batch is through
    cursor_commit_id   uuid,
    sessions           bigint      NOT NULL DEFAULT 0,   -- delivered so far
    events             bigint      NOT NULL DEFAULT 0,
    stopped_reason     text,                             -- why the lane stopped, for status
    mirrored_at        timestamptz,
    CONSTRAINT lane_pkey PRIMARY KEY (epoch, lane),
    CONSTRAINT lane_epoch_fkey FOREIGN KEY (epoch) REFERENCES outbox.lane_epoch (epoch),
    CONSTRAINT lane_natural CHECK (least(lane, lease_token, seq, cursor_batch, sessions, events) >= 0),
    CONSTRAINT lane_lease_whole CHECK (num_nulls(lease_holder, lease_until, lease_backend_pid) IN (0, 3)),
    CONSTRAINT lane_cursor_committed CHECK ((cursor_batch = 0) = (cursor_commit_id IS NULL)),
    CONSTRAINT lane_cursor_key_in_batch CHECK (cursor_batch > 0 OR cursor_key IS NULL)
);

-- One row a Kafka transaction of the publisher, appended after its commit.
CREATE TABLE outbox.delivery (
    epoch         integer     NOT NULL,
    lane          integer     NOT NULL,
    seq           bigint      NOT NULL,
    after_batch   bigint,                        -- the cursor before, exclusive; NULL where unknown
    after_key     text COLLATE "C",
    to_batch      bigint      NOT NULL,          -- the cursor after, inclusive; to_key NULL: all of to_batch
    to_key        text COLLATE "C",
    sessions      bigint      NOT NULL,
    events        bigint      NOT NULL,
    kafka_offsets jsonb,                         -- {topic: {partition: [first, last]}}; NULL where unknown (filled from progress)
    committed_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT delivery_pkey PRIMARY KEY (epoch, lane, seq),
    CONSTRAINT delivery_lane_fkey FOREIGN KEY (epoch, lane) REFERENCES outbox.lane (epoch, lane),
    CONSTRAINT delivery_natural CHECK (seq > 0 AND to_batch > 0 AND least(after_batch, sessions, events) >= 0),
    CONSTRAINT delivery_forward CHECK (after_batch <= to_batch),
    CONSTRAINT delivery_after_key_in_batch CHECK (after_batch > 0 OR after_key IS NULL),
    CONSTRAINT delivery_kafka_offsets_object CHECK (jsonb_typeof(kafka_offsets) = 'object')
);

CREATE INDEX delivery_committed_at_idx ON outbox.delivery (committed_at);

-- Rows that Kafka refuses for themselves; the lane goes on without them.
CREATE TABLE outbox.parked (
    session_key     text COLLATE "C" NOT NULL,
    batch_id        bigint      NOT NULL,
    epoch           integer     NOT NULL,
    lane            integer     NOT NULL,
    lease_token     bigint      NOT NULL,
    reason          text        NOT NULL,
    detail          text        NOT NULL,
    state           text        NOT NULL DEFAULT 'parked',
    requeued_batch  bigint,
    state_changed_at timestamptz NOT NULL DEFAULT now(),
    created_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT parked_pkey PRIMARY KEY (session_key, batch_id),
    CONSTRAINT parked_lane_fkey FOREIGN KEY (epoch, lane) REFERENCES outbox.lane (epoch, lane),
    CONSTRAINT parked_reason_known CHECK (reason IN ('too_large', 'invalid')),
    CONSTRAINT parked_state_known CHECK (state IN ('parked', 'requeued', 'discarded')),
    CONSTRAINT parked_requeued_by CHECK ((state = 'requeued') = (requeued_batch IS NOT NULL)),
    CONSTRAINT parked_requeued_later CHECK (requeued_batch > batch_id)
);

-- One row an output event, with where it stands. outbox_id is the header that consumers deduplicate on.
CREATE VIEW outbox.event AS
SELECT
    o.batch_id,
    o.session_key,
    s.topic_id || '/' || s.partition || '/' || s.end_offset || '/' || (e.n - s.before - 1) AS outbox_id,
    o.revision,
    e.topic,
    coalesce(e.key, convert_to(o.session_key, 'UTF8')) AS key,
    e.value,
    outbox.try_json(e.value) AS value_json,
    e.headers,
    e.partition AS target_partition,
    to_timestamp(e.timestamp_ms / 1000.0) AS event_timestamp,
    s.topic_id AS input_topic_id,
    s.partition AS input_partition,
    s.start_offset AS session_start_offset,
    s.end_offset AS session_end_offset,
    to_timestamp(s.started_ms / 1000.0) AS session_started_at,
    to_timestamp(s.ended_ms / 1000.0) AS session_ended_at,
    o.lane,
    CASE
        WHEN p.state IS NOT NULL THEN p.state
        WHEN l.cursor_batch > o.batch_id OR (l.cursor_batch = o.batch_id AND (l.cursor_key IS NULL OR l.cursor_key >= o.session_key))
            THEN 'delivered'
        ELSE 'pending'
    END AS delivery_state,
    b.created_at AS committed_at
FROM outbox.session_output o
JOIN outbox.batch b ON b.batch_id = o.batch_id
CROSS JOIN LATERAL (
    SELECT t.*, sum(t.outputs) OVER (ORDER BY t.n) - t.outputs AS before
    FROM unnest(o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends,
                o.session_started_ms, o.session_ended_ms, o.session_outputs)
         WITH ORDINALITY AS t (topic_id, partition, start_offset, end_offset, started_ms, ended_ms, outputs, n)
) s
JOIN LATERAL unnest(o.topics, o.keys, o."values", o.headers, o.partitions, o.timestamps_ms)
    WITH ORDINALITY AS e (topic, key, value, headers, partition, timestamp_ms, n)
    ON e.n > s.before AND e.n <= s.before + s.outputs
LEFT JOIN LATERAL (SELECT epoch FROM outbox.lane_epoch WHERE from_batch <= o.batch_id ORDER BY from_batch DESC LIMIT 1) ep ON true
LEFT JOIN outbox.lane l ON l.epoch = ep.epoch AND l.lane = o.lane
LEFT JOIN outbox.parked p ON p.session_key = o.session_key AND p.batch_id = o.batch_id;

-- Roles belong to the whole server, so another outbox may have made them already. People and services get a login that is a member.
DO $$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['outbox_writer', 'outbox_publisher', 'outbox_auditor'] LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = role_name);
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- the migration of another database came first
        END;
    END LOOP;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA outbox FROM PUBLIC;

GRANT USAGE ON SCHEMA outbox TO outbox_writer, outbox_publisher, outbox_auditor;
GRANT SELECT ON outbox.alembic_version, outbox.event TO outbox_writer, outbox_publisher, outbox_auditor;
GRANT EXECUTE ON FUNCTION outbox.server_identity(), outbox.try_json(bytea) TO outbox_writer, outbox_publisher, outbox_auditor;

GRANT SELECT ON outbox.identity, outbox.lane, outbox.parked TO outbox_writer;
GRANT SELECT, INSERT ON outbox.generation, outbox.session_output, outbox.lane_epoch TO outbox_writer;
GRANT SELECT, INSERT, UPDATE (recomputed_at, recomputed_hash) ON outbox.batch TO outbox_writer;
GRANT SELECT, INSERT, UPDATE (state, resolved_batch, state_changed_at) ON outbox.dead_letter TO outbox_writer;
GRANT SELECT, INSERT, UPDATE (batch_id, open_sessions, open_events, open_bytes, state_bytes, oldest_open) ON outbox.bucket TO outbox_writer;
GRANT SELECT, UPDATE (run_id, host, pid, backend_pid, backend_start, heartbeat_at, started_at) ON outbox.writer TO outbox_writer;
GRANT EXECUTE ON FUNCTION outbox.ensure_partitions(bigint, bigint), outbox.total(integer[]) TO outbox_writer;

GRANT SELECT ON outbox.generation, outbox.batch, outbox.session_output, outbox.lane_epoch TO outbox_publisher;
GRANT SELECT, UPDATE (cluster_id, transactional_id_prefix, output_topic_ids) ON outbox.identity TO outbox_publisher;
GRANT SELECT, INSERT, UPDATE (lease_token, lease_holder, lease_until, lease_backend_pid, lease_backend_start, seq, cursor_batch, cursor_key,
    cursor_commit_id, sessions, events, stopped_reason, mirrored_at) ON outbox.lane TO outbox_publisher;
GRANT SELECT, INSERT ON outbox.delivery, outbox.parked TO outbox_publisher;

GRANT SELECT ON outbox.identity, outbox.writer, outbox.generation, outbox.batch, outbox.session_output, outbox.dead_letter, outbox.bucket,
    outbox.lane_epoch, outbox.lane, outbox.delivery, outbox.parked TO outbox_auditor;
