-- What `alembic upgrade head` makes. Written by `python -m db.dump > db/schema.sql`; do not edit.

--
-- Name: outbox; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA outbox;

--
-- Name: change_lanes(integer); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.change_lanes(new_lanes integer, OUT epoch integer, OUT from_batch bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    newest outbox.lane_epoch%ROWTYPE;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('outbox.writer', 0));
    SELECT * INTO newest FROM outbox.lane_epoch e ORDER BY e.epoch DESC LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there are no lanes yet: the job makes the first ones when it starts'
            USING ERRCODE = 'object_not_in_prerequisite_state', CONSTRAINT = 'change_lanes_no_epoch';
    END IF;
    SELECT coalesce(max(b.batch_id), 0) + 1 INTO from_batch FROM outbox.batch b;
    IF newest.lanes = new_lanes THEN
        RAISE EXCEPTION 'there are % lanes already', new_lanes
            USING ERRCODE = 'object_not_in_prerequisite_state', CONSTRAINT = 'change_lanes_same';
    ELSIF newest.from_batch >= from_batch THEN
        RAISE EXCEPTION 'no batch was committed since the lanes were last changed, to %', newest.lanes
            USING ERRCODE = 'object_not_in_prerequisite_state', CONSTRAINT = 'change_lanes_no_batch';
    END IF;
    epoch := newest.epoch + 1;
    INSERT INTO outbox.lane_epoch (epoch, from_batch, lanes) VALUES (change_lanes.epoch, change_lanes.from_batch, new_lanes);
    PERFORM pg_notify('outbox_batch', '');
END $$;

--
-- Name: ensure_partitions(bigint, bigint); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.ensure_partitions(first_batch bigint, last_batch bigint) RETURNS integer
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

--
-- Name: requeue(text[], bigint[], integer[], integer, uuid); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.requeue(session_keys text[], batch_ids bigint[], lanes integer[], lane_count integer, run_id uuid) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    new_batch bigint;
    marked bigint;
    copied bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('outbox.writer', 0));
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
        o.session_ends, o.session_started_ms, o.session_ended_ms, o.session_events, o.session_outputs, o.topics, o."values", o.keys, o.headers,
        o.partitions, o.timestamps_ms
    FROM unnest(session_keys, batch_ids, lanes) AS w (session_key, batch_id, lane)
    JOIN outbox.session_output o ON o.session_key = w.session_key AND o.batch_id = w.batch_id;
    GET DIAGNOSTICS copied = ROW_COUNT;
    IF copied <> marked THEN
        RAISE EXCEPTION 'outbox.session_output has % of % parked rows no longer', marked - copied, marked USING ERRCODE = 'no_data_found';
    END IF;
    INSERT INTO outbox.batch (batch_id, kind, generation, run_id, sessions, output_events, output_bytes, content_hash, transform_fingerprint)
    SELECT new_batch, 'requeue', (SELECT max(g.generation) FROM outbox.generation g), requeue.run_id,
           coalesce(sum(cardinality(o.session_ends)), 0), coalesce(sum(cardinality(o.topics)), 0),
           coalesce(sum((SELECT sum(length(v)) FROM unnest(o."values") v)), 0),
           sha256(string_agg(sha256(convert_to(o.session_key || ' ' || o."values"::text, 'UTF8')), ''::bytea ORDER BY o.session_key)), 'requeue'
    FROM outbox.session_output o
    WHERE o.batch_id = new_batch;
    PERFORM pg_notify('outbox_batch', '');
    RETURN new_batch;
END $$;

--
-- Name: server_identity(); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.server_identity(OUT system_identifier bigint, OUT timeline integer) RETURNS record
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT s.system_identifier,
           CASE WHEN pg_is_in_recovery() THEN (pg_control_checkpoint()).timeline_id
                ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer END
    FROM pg_control_system() s
$$;

--
-- Name: total(integer[]); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.total("values" integer[]) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    value integer;
    total bigint := 0;
BEGIN
    FOREACH value IN ARRAY "values" LOOP
        total := total + value;
    END LOOP;
    RETURN total;
END $$;

--
-- Name: try_json(bytea); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.try_json(value bytea) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN convert_from(value, 'UTF8')::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END $$;

--
-- Name: alembic_version; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.alembic_version (
    version_num character varying(32) NOT NULL
);

--
-- Name: batch; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.batch (
    batch_id bigint NOT NULL,
    kind text NOT NULL,
    generation integer NOT NULL,
    spark_batch bigint,
    part smallint DEFAULT 0 NOT NULL,
    commit_id uuid DEFAULT gen_random_uuid() NOT NULL,
    run_id uuid NOT NULL,
    start_offsets jsonb,
    end_offsets jsonb,
    done_offsets jsonb,
    safe_offsets jsonb,
    input_events bigint DEFAULT 0 NOT NULL,
    sessions integer DEFAULT 0 NOT NULL,
    output_events bigint DEFAULT 0 NOT NULL,
    dead_letters integer DEFAULT 0 NOT NULL,
    duplicate_events integer DEFAULT 0 NOT NULL,
    skipped_sessions integer DEFAULT 0 NOT NULL,
    content_hash bytea NOT NULL,
    transform_fingerprint text NOT NULL,
    recomputed_at timestamp with time zone,
    recomputed_hash bytea,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    output_bytes bigint DEFAULT 0 NOT NULL,
    CONSTRAINT batch_content_hash_length CHECK ((length(content_hash) = 32)),
    CONSTRAINT batch_counts_natural CHECK ((LEAST(spark_batch, input_events, (sessions)::bigint, output_events, (dead_letters)::bigint, (duplicate_events)::bigint, (skipped_sessions)::bigint) >= 0)),
    CONSTRAINT batch_kind_known CHECK ((kind = ANY (ARRAY['stream'::text, 'retry'::text, 'requeue'::text]))),
    CONSTRAINT batch_offsets_objects CHECK (((jsonb_typeof(start_offsets) = 'object'::text) AND (jsonb_typeof(end_offsets) = 'object'::text) AND (jsonb_typeof(done_offsets) = 'object'::text) AND (jsonb_typeof(safe_offsets) = 'object'::text))),
    CONSTRAINT batch_output_bytes_natural CHECK ((output_bytes >= 0)),
    CONSTRAINT batch_positive CHECK (((batch_id > 0) AND (part >= 0))),
    CONSTRAINT batch_recomputed_whole CHECK (((recomputed_hash IS NULL) OR ((recomputed_at IS NOT NULL) AND (length(recomputed_hash) = 32)))),
    CONSTRAINT batch_stream_offsets CHECK ((num_nulls(spark_batch, start_offsets, end_offsets, done_offsets, safe_offsets) =
CASE kind
    WHEN 'stream'::text THEN 0
    ELSE 5
END))
);

--
-- Name: bucket; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.bucket (
    generation integer NOT NULL,
    bucket integer NOT NULL,
    batch_id bigint NOT NULL,
    open_sessions integer NOT NULL,
    open_events bigint NOT NULL,
    open_bytes bigint NOT NULL,
    state_bytes bigint NOT NULL,
    oldest_open jsonb NOT NULL,
    CONSTRAINT bucket_counts_natural CHECK (((LEAST((bucket)::bigint, (open_sessions)::bigint, open_events, open_bytes, state_bytes) >= 0) AND (batch_id > 0))),
    CONSTRAINT bucket_oldest_open_object CHECK ((jsonb_typeof(oldest_open) = 'object'::text))
);

--
-- Name: dead_letter; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.dead_letter (
    dead_letter_id bigint NOT NULL,
    topic_id text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    first_offset bigint NOT NULL,
    last_offset bigint NOT NULL,
    closing_offset bigint NOT NULL,
    reason text NOT NULL,
    revision integer DEFAULT 0 NOT NULL,
    generation integer NOT NULL,
    batch_id bigint NOT NULL,
    session_key text COLLATE pg_catalog."C",
    detail text NOT NULL,
    event_count integer NOT NULL,
    event_offsets bigint[] NOT NULL,
    event_times_ms bigint[] NOT NULL,
    event_values bytea[] NOT NULL,
    state text DEFAULT 'open'::text NOT NULL,
    resolved_batch bigint,
    state_changed_at timestamp with time zone DEFAULT now() NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    event_types text[],
    CONSTRAINT dead_letter_events_parallel CHECK (((cardinality(event_times_ms) = cardinality(event_offsets)) AND (cardinality(event_values) = cardinality(event_offsets)) AND (event_count >= cardinality(event_offsets)))),
    CONSTRAINT dead_letter_natural CHECK (((LEAST((partition)::bigint, first_offset, (revision)::bigint) >= 0) AND (batch_id > 0) AND (event_count > 0))),
    CONSTRAINT dead_letter_offsets_ordered CHECK (((first_offset <= last_offset) AND (last_offset <= closing_offset))),
    CONSTRAINT dead_letter_reason_known CHECK ((reason = ANY (ARRAY['malformed'::text, 'no_start'::text, 'restarted'::text, 'timed_out'::text, 'too_large'::text, 'transform_failed'::text]))),
    CONSTRAINT dead_letter_resolved_by CHECK (((state = 'resolved'::text) = (resolved_batch IS NOT NULL))),
    CONSTRAINT dead_letter_state_known CHECK ((state = ANY (ARRAY['open'::text, 'resolved'::text, 'discarded'::text]))),
    CONSTRAINT dead_letter_types_parallel CHECK ((cardinality(event_types) = cardinality(event_offsets)))
);

--
-- Name: dead_letter_dead_letter_id_seq; Type: SEQUENCE; Schema: outbox; Owner: -
--

ALTER TABLE outbox.dead_letter ALTER COLUMN dead_letter_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outbox.dead_letter_dead_letter_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: delivery; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.delivery (
    epoch integer NOT NULL,
    lane integer NOT NULL,
    seq bigint NOT NULL,
    after_batch bigint,
    after_key text COLLATE pg_catalog."C",
    to_batch bigint NOT NULL,
    to_key text COLLATE pg_catalog."C",
    sessions bigint NOT NULL,
    events bigint NOT NULL,
    kafka_offsets jsonb,
    committed_at timestamp with time zone DEFAULT now() NOT NULL,
    kind text DEFAULT 'delivery'::text NOT NULL,
    note text,
    CONSTRAINT delivery_after_key_in_batch CHECK (((after_batch > 0) OR (after_key IS NULL))),
    CONSTRAINT delivery_forward CHECK (((after_batch <= to_batch) OR (kind = 'resume'::text))),
    CONSTRAINT delivery_kafka_offsets_object CHECK ((jsonb_typeof(kafka_offsets) = 'object'::text)),
    CONSTRAINT delivery_kind_known CHECK ((kind = ANY (ARRAY['delivery'::text, 'resume'::text]))),
    CONSTRAINT delivery_natural CHECK (((seq > 0) AND ((to_batch > 0) OR (kind = 'resume'::text)) AND (LEAST(after_batch, to_batch, sessions, events) >= 0)))
);

--
-- Name: lane; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.lane (
    epoch integer NOT NULL,
    lane integer NOT NULL,
    lease_token bigint DEFAULT 0 NOT NULL,
    lease_holder text,
    lease_until timestamp with time zone,
    lease_backend_pid integer,
    lease_backend_start timestamp with time zone,
    seq bigint DEFAULT 0 NOT NULL,
    cursor_batch bigint DEFAULT 0 NOT NULL,
    cursor_key text COLLATE pg_catalog."C",
    cursor_commit_id uuid,
    sessions bigint DEFAULT 0 NOT NULL,
    events bigint DEFAULT 0 NOT NULL,
    stopped_reason text,
    mirrored_at timestamp with time zone,
    stopped_why text,
    CONSTRAINT lane_cursor_committed CHECK (((cursor_batch = 0) = (cursor_commit_id IS NULL))),
    CONSTRAINT lane_cursor_key_in_batch CHECK (((cursor_batch > 0) OR (cursor_key IS NULL))),
    CONSTRAINT lane_lease_whole CHECK ((num_nulls(lease_holder, lease_until, lease_backend_pid) = ANY (ARRAY[0, 3]))),
    CONSTRAINT lane_natural CHECK ((LEAST((lane)::bigint, lease_token, seq, cursor_batch, sessions, events) >= 0)),
    CONSTRAINT lane_stopped_whole CHECK (((stopped_why IS NULL) OR (stopped_reason IS NOT NULL)))
);

--
-- Name: lane_epoch; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.lane_epoch (
    epoch integer NOT NULL,
    from_batch bigint NOT NULL,
    lanes integer NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT lane_epoch_positive CHECK (((epoch > 0) AND (from_batch > 0) AND ((lanes >= 1) AND (lanes <= 1024))))
);

--
-- Name: parked; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.parked (
    session_key text NOT NULL COLLATE pg_catalog."C",
    batch_id bigint NOT NULL,
    epoch integer NOT NULL,
    lane integer NOT NULL,
    lease_token bigint NOT NULL,
    reason text NOT NULL,
    detail text NOT NULL,
    state text DEFAULT 'parked'::text NOT NULL,
    requeued_batch bigint,
    state_changed_at timestamp with time zone DEFAULT now() NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT parked_reason_known CHECK ((reason = ANY (ARRAY['too_large'::text, 'invalid'::text]))),
    CONSTRAINT parked_requeued_by CHECK (((state = 'requeued'::text) = (requeued_batch IS NOT NULL))),
    CONSTRAINT parked_requeued_later CHECK ((requeued_batch > batch_id)),
    CONSTRAINT parked_state_known CHECK ((state = ANY (ARRAY['parked'::text, 'requeued'::text, 'discarded'::text])))
);

--
-- Name: session_output; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.session_output (
    session_key text NOT NULL COLLATE pg_catalog."C",
    batch_id bigint NOT NULL,
    lane integer NOT NULL,
    revision integer NOT NULL,
    session_topic_ids text[] NOT NULL,
    session_partitions integer[] NOT NULL,
    session_starts bigint[] NOT NULL,
    session_ends bigint[] NOT NULL,
    session_started_ms bigint[] NOT NULL,
    session_ended_ms bigint[] NOT NULL,
    session_events integer[] NOT NULL,
    session_outputs integer[] NOT NULL,
    topics text[] NOT NULL,
    "values" bytea[] NOT NULL,
    keys bytea[],
    headers jsonb[],
    partitions integer[],
    timestamps_ms bigint[],
    CONSTRAINT session_output_counts_agree CHECK ((NOT (
CASE cardinality(session_outputs)
    WHEN 1 THEN (session_outputs[1])::bigint
    ELSE outbox.total(session_outputs)
END IS DISTINCT FROM cardinality(topics)))),
    CONSTRAINT session_output_events_parallel CHECK (((cardinality("values") = cardinality(topics)) AND (COALESCE(cardinality(keys), cardinality(topics)) = cardinality(topics)) AND (COALESCE(cardinality(headers), cardinality(topics)) = cardinality(topics)) AND (COALESCE(cardinality(partitions), cardinality(topics)) = cardinality(topics)) AND (COALESCE(cardinality(timestamps_ms), cardinality(topics)) = cardinality(topics)))),
    CONSTRAINT session_output_key_bounds CHECK (((session_key <> ''::text) AND (octet_length(session_key) <= 1024))),
    CONSTRAINT session_output_natural CHECK (((lane >= 0) AND (revision >= 0))),
    CONSTRAINT session_output_sessions_natural CHECK ((((0 <= ALL (session_partitions)) IS TRUE) AND ((0 <= ALL (session_starts)) IS TRUE) AND ((0 <= ALL (session_ends)) IS TRUE) AND ((1 <= ALL (session_events)) IS TRUE) AND ((0 <= ALL (session_outputs)) IS TRUE) AND ((''::text <> ALL (session_topic_ids)) IS TRUE) AND (array_position(session_started_ms, NULL::bigint) IS NULL) AND (array_position(session_ended_ms, NULL::bigint) IS NULL))),
    CONSTRAINT session_output_sessions_parallel CHECK (((cardinality(session_ends) > 0) AND (cardinality(session_topic_ids) = cardinality(session_ends)) AND (cardinality(session_partitions) = cardinality(session_ends)) AND (cardinality(session_starts) = cardinality(session_ends)) AND (cardinality(session_started_ms) = cardinality(session_ends)) AND (cardinality(session_ended_ms) = cardinality(session_ends)) AND (cardinality(session_events) = cardinality(session_ends)) AND (cardinality(session_outputs) = cardinality(session_ends)))),
    CONSTRAINT session_output_topics_named CHECK (((''::text <> ALL (topics)) IS TRUE))
)
PARTITION BY RANGE (batch_id);

--
-- Name: event; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.event AS
 SELECT o.batch_id,
    o.session_key,
    ((((((s.topic_id || '/'::text) || s.partition) || '/'::text) || s.end_offset) || '/'::text) || ((e.n - s.before) - 1)) AS outbox_id,
    o.revision,
    e.topic,
    COALESCE(e.key, convert_to(o.session_key, 'UTF8'::name)) AS key,
    e.value,
    outbox.try_json(e.value) AS value_json,
    e.headers,
    e.partition AS target_partition,
    to_timestamp((((e.timestamp_ms)::numeric / 1000.0))::double precision) AS event_timestamp,
    s.topic_id AS input_topic_id,
    s.partition AS input_partition,
    s.start_offset AS session_start_offset,
    s.end_offset AS session_end_offset,
    to_timestamp((((s.started_ms)::numeric / 1000.0))::double precision) AS session_started_at,
    to_timestamp((((s.ended_ms)::numeric / 1000.0))::double precision) AS session_ended_at,
    o.lane,
        CASE
            WHEN (p.state IS NOT NULL) THEN p.state
            WHEN ((l.cursor_batch > o.batch_id) OR ((l.cursor_batch = o.batch_id) AND ((l.cursor_key IS NULL) OR (l.cursor_key >= o.session_key)))) THEN 'delivered'::text
            ELSE 'pending'::text
        END AS delivery_state,
    b.created_at AS committed_at,
    b.kind AS batch_kind,
    b.generation
   FROM ((((((outbox.session_output o
     JOIN outbox.batch b ON ((b.batch_id = o.batch_id)))
     CROSS JOIN LATERAL ( SELECT t.topic_id,
            t.partition,
            t.start_offset,
            t.end_offset,
            t.started_ms,
            t.ended_ms,
            t.outputs,
            t.n,
            (sum(t.outputs) OVER (ORDER BY t.n) - t.outputs) AS before
           FROM UNNEST(o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends, o.session_started_ms, o.session_ended_ms, o.session_outputs) WITH ORDINALITY t(topic_id, partition, start_offset, end_offset, started_ms, ended_ms, outputs, n)) s)
     JOIN LATERAL UNNEST(o.topics, o.keys, o."values", o.headers, o.partitions, o.timestamps_ms) WITH ORDINALITY e(topic, key, value, headers, partition, timestamp_ms, n) ON (((e.n > s.before) AND (e.n <= (s.before + s.outputs)))))
     LEFT JOIN LATERAL ( SELECT lane_epoch.epoch
           FROM outbox.lane_epoch
          WHERE (lane_epoch.from_batch <= o.batch_id)
          ORDER BY lane_epoch.from_batch DESC
         LIMIT 1) ep ON (true))
     LEFT JOIN outbox.lane l ON (((l.epoch = ep.epoch) AND (l.lane = o.lane))))
     LEFT JOIN outbox.parked p ON (((p.session_key = o.session_key) AND (p.batch_id = o.batch_id))));

--
-- Name: generation; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.generation (
    generation integer NOT NULL,
    directory_token text NOT NULL,
    start_offsets jsonb NOT NULL,
    high_water jsonb NOT NULL,
    topics jsonb NOT NULL,
    reason text NOT NULL,
    policy text NOT NULL,
    revision integer DEFAULT 0 NOT NULL,
    assembly jsonb NOT NULL,
    assembly_fingerprint text NOT NULL,
    run_id uuid NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    from_generation integer,
    from_batch bigint,
    savepoint text COLLATE pg_catalog."C",
    read_again bigint DEFAULT 0 NOT NULL,
    explanation text DEFAULT ''::text NOT NULL,
    cut_offsets jsonb,
    CONSTRAINT generation_continues_one CHECK (((from_generation < generation) AND ((from_batch IS NULL) OR (from_generation IS NOT NULL)))),
    CONSTRAINT generation_cut_object CHECK ((jsonb_typeof(cut_offsets) = 'object'::text)),
    CONSTRAINT generation_objects CHECK (((jsonb_typeof(start_offsets) = 'object'::text) AND (jsonb_typeof(high_water) = 'object'::text) AND (jsonb_typeof(topics) = 'object'::text) AND (jsonb_typeof(assembly) = 'object'::text))),
    CONSTRAINT generation_policy_known CHECK ((policy = ANY (ARRAY['skip'::text, 'reissue'::text]))),
    CONSTRAINT generation_positive CHECK ((generation > 0)),
    CONSTRAINT generation_read_again_natural CHECK ((read_again >= 0)),
    CONSTRAINT generation_reason_known CHECK ((reason = ANY (ARRAY['first'::text, 'checkpoint_lost'::text, 'savepoint'::text, 'rescale'::text, 'outbox_behind'::text, 'new_topic'::text, 'data_loss'::text, 'changed_assembly'::text, 'requested'::text]))),
    CONSTRAINT generation_revision_natural CHECK ((revision >= 0)),
    CONSTRAINT generation_savepoint_named CHECK (((savepoint IS NOT NULL) = (reason = 'savepoint'::text)))
);

--
-- Name: identity; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.identity (
    singleton boolean DEFAULT true NOT NULL,
    outbox_uuid uuid DEFAULT gen_random_uuid() NOT NULL,
    system_identifier bigint NOT NULL,
    timeline integer NOT NULL,
    cluster_id text,
    transactional_id_prefix text,
    output_topic_ids jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT identity_one_row CHECK (singleton),
    CONSTRAINT identity_output_topic_ids_object CHECK ((jsonb_typeof(output_topic_ids) = 'object'::text))
);

--
-- Name: publisher_process; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.publisher_process (
    process_id uuid NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    alive_until timestamp with time zone NOT NULL,
    backend_pid integer NOT NULL,
    backend_start timestamp with time zone,
    ended_at timestamp with time zone
);

--
-- Name: replay; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.replay (
    replay_id bigint NOT NULL,
    replay_uuid uuid DEFAULT gen_random_uuid() NOT NULL,
    state text DEFAULT 'running'::text NOT NULL,
    reason text,
    from_batch bigint NOT NULL,
    to_batch bigint NOT NULL,
    topics text[],
    only_keys boolean DEFAULT false NOT NULL,
    requested jsonb DEFAULT '{}'::jsonb NOT NULL,
    target_topic text,
    target_cluster_id text NOT NULL,
    target_servers text NOT NULL,
    events_per_second integer,
    rows_total bigint NOT NULL,
    events_total bigint NOT NULL,
    lease_token bigint DEFAULT 0 NOT NULL,
    lease_holder text,
    lease_until timestamp with time zone,
    lease_backend_pid integer,
    lease_backend_start timestamp with time zone,
    seq bigint DEFAULT 0 NOT NULL,
    cursor_batch bigint DEFAULT 0 NOT NULL,
    cursor_key text COLLATE pg_catalog."C",
    rows_sent bigint DEFAULT 0 NOT NULL,
    events_sent bigint DEFAULT 0 NOT NULL,
    rows_skipped bigint DEFAULT 0 NOT NULL,
    measured_rate double precision,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    state_changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT replay_batches_ordered CHECK (((from_batch > 0) AND (from_batch <= (to_batch + 1)))),
    CONSTRAINT replay_lease_whole CHECK ((num_nulls(lease_holder, lease_until, lease_backend_pid) = ANY (ARRAY[0, 3]))),
    CONSTRAINT replay_natural CHECK ((LEAST(rows_total, events_total, lease_token, seq, cursor_batch, rows_sent, events_sent, rows_skipped) >= 0)),
    CONSTRAINT replay_rate_positive CHECK ((events_per_second > 0)),
    CONSTRAINT replay_requested_object CHECK ((jsonb_typeof(requested) = 'object'::text)),
    CONSTRAINT replay_state_known CHECK ((state = ANY (ARRAY['running'::text, 'paused'::text, 'cancelled'::text, 'done'::text])))
);

--
-- Name: replay_key; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.replay_key (
    replay_id bigint NOT NULL,
    session_key text NOT NULL COLLATE pg_catalog."C"
);

--
-- Name: replay_replay_id_seq; Type: SEQUENCE; Schema: outbox; Owner: -
--

ALTER TABLE outbox.replay ALTER COLUMN replay_id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME outbox.replay_replay_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: request; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.request (
    request_id bigint NOT NULL,
    run_id uuid NOT NULL,
    kind text NOT NULL,
    arguments jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    answered_at timestamp with time zone,
    outcome text,
    answer text,
    CONSTRAINT request_answered_whole CHECK ((num_nulls(answered_at, outcome, answer) = ANY (ARRAY[0, 3]))),
    CONSTRAINT request_arguments_object CHECK ((jsonb_typeof(arguments) = 'object'::text)),
    CONSTRAINT request_kind_known CHECK ((kind = ANY (ARRAY['stop'::text, 'restore'::text, 'rescale'::text]))),
    CONSTRAINT request_outcome_known CHECK ((outcome = ANY (ARRAY['done'::text, 'refused'::text])))
);

--
-- Name: request_request_id_seq; Type: SEQUENCE; Schema: outbox; Owner: -
--

ALTER TABLE outbox.request ALTER COLUMN request_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outbox.request_request_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: run; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.run (
    run_id uuid NOT NULL,
    number bigint NOT NULL,
    generation integer NOT NULL,
    restored text NOT NULL,
    spark_batch bigint NOT NULL,
    resumes_at jsonb NOT NULL,
    high_water jsonb NOT NULL,
    read_again bigint NOT NULL,
    explanation text NOT NULL,
    attempt integer NOT NULL,
    transform_fingerprint text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    system_identifier bigint NOT NULL,
    timeline integer NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ended_at timestamp with time zone,
    ended_because text,
    CONSTRAINT run_ended_whole CHECK ((num_nulls(ended_at, ended_because) = ANY (ARRAY[0, 2]))),
    CONSTRAINT run_natural CHECK (((LEAST(spark_batch, read_again) >= 0) AND (attempt > 0))),
    CONSTRAINT run_objects CHECK (((jsonb_typeof(resumes_at) = 'object'::text) AND (jsonb_typeof(high_water) = 'object'::text))),
    CONSTRAINT run_restored_known CHECK ((restored = ANY (ARRAY['fresh'::text, 'unused_generation'::text, 'checkpoint'::text, 'savepoint'::text, 'new_generation'::text])))
);

--
-- Name: run_number_seq; Type: SEQUENCE; Schema: outbox; Owner: -
--

ALTER TABLE outbox.run ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outbox.run_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: savepoint; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.savepoint (
    savepoint_id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    generation integer NOT NULL,
    batch_id bigint,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    deleted_at timestamp with time zone,
    CONSTRAINT savepoint_name_form CHECK ((name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'::text))
);

--
-- Name: savepoint_savepoint_id_seq; Type: SEQUENCE; Schema: outbox; Owner: -
--

ALTER TABLE outbox.savepoint ALTER COLUMN savepoint_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outbox.savepoint_savepoint_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: session_output_p00000000; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.session_output_p00000000 (
    session_key text NOT NULL COLLATE pg_catalog."C",
    batch_id bigint NOT NULL,
    lane integer NOT NULL,
    revision integer NOT NULL,
    session_topic_ids text[] NOT NULL,
    session_partitions integer[] NOT NULL,
    session_starts bigint[] NOT NULL,
    session_ends bigint[] NOT NULL,
    session_started_ms bigint[] NOT NULL,
    session_ended_ms bigint[] NOT NULL,
    session_events integer[] NOT NULL,
    session_outputs integer[] NOT NULL,
    topics text[] NOT NULL,
    "values" bytea[] NOT NULL,
    keys bytea[],
    headers jsonb[],
    partitions integer[],
    timestamps_ms bigint[],
    CONSTRAINT session_output_counts_agree CHECK ((NOT (
CASE cardinality(session_outputs)
    WHEN 1 THEN (session_outputs[1])::bigint
    ELSE outbox.total(session_outputs)
END IS DISTINCT FROM cardinality(topics)))),
    CONSTRAINT session_output_events_parallel CHECK (((cardinality("values") = cardinality(topics)) AND (COALESCE(cardinality(keys), cardinality(topics)) = cardinality(topics)) AND (COALESCE(cardinality(headers), cardinality(topics)) = cardinality(topics)) AND (COALESCE(cardinality(partitions), cardinality(topics)) = cardinality(topics)) AND (COALESCE(cardinality(timestamps_ms), cardinality(topics)) = cardinality(topics)))),
    CONSTRAINT session_output_key_bounds CHECK (((session_key <> ''::text) AND (octet_length(session_key) <= 1024))),
    CONSTRAINT session_output_natural CHECK (((lane >= 0) AND (revision >= 0))),
    CONSTRAINT session_output_sessions_natural CHECK ((((0 <= ALL (session_partitions)) IS TRUE) AND ((0 <= ALL (session_starts)) IS TRUE) AND ((0 <= ALL (session_ends)) IS TRUE) AND ((1 <= ALL (session_events)) IS TRUE) AND ((0 <= ALL (session_outputs)) IS TRUE) AND ((''::text <> ALL (session_topic_ids)) IS TRUE) AND (array_position(session_started_ms, NULL::bigint) IS NULL) AND (array_position(session_ended_ms, NULL::bigint) IS NULL))),
    CONSTRAINT session_output_sessions_parallel CHECK (((cardinality(session_ends) > 0) AND (cardinality(session_topic_ids) = cardinality(session_ends)) AND (cardinality(session_partitions) = cardinality(session_ends)) AND (cardinality(session_starts) = cardinality(session_ends)) AND (cardinality(session_started_ms) = cardinality(session_ends)) AND (cardinality(session_ended_ms) = cardinality(session_ends)) AND (cardinality(session_events) = cardinality(session_ends)) AND (cardinality(session_outputs) = cardinality(session_ends)))),
    CONSTRAINT session_output_topics_named CHECK (((''::text <> ALL (topics)) IS TRUE))
)
WITH (toast_tuple_target='8160');

--
-- Name: session_output_p00000001; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.session_output_p00000001 (
    session_key text NOT NULL COLLATE pg_catalog."C",
    batch_id bigint NOT NULL,
    lane integer NOT NULL,
    revision integer NOT NULL,
    session_topic_ids text[] NOT NULL,
    session_partitions integer[] NOT NULL,
    session_starts bigint[] NOT NULL,
    session_ends bigint[] NOT NULL,
    session_started_ms bigint[] NOT NULL,
    session_ended_ms bigint[] NOT NULL,
    session_events integer[] NOT NULL,
    session_outputs integer[] NOT NULL,
    topics text[] NOT NULL,
    "values" bytea[] NOT NULL,
    keys bytea[],
    headers jsonb[],
    partitions integer[],
    timestamps_ms bigint[],
    CONSTRAINT session_output_counts_agree CHECK ((NOT (
CASE cardinality(session_outputs)
    WHEN 1 THEN (session_outputs[1])::bigint
    ELSE outbox.total(session_outputs)
END IS DISTINCT FROM cardinality(topics)))),
    CONSTRAINT session_output_events_parallel CHECK (((cardinality("values") = cardinality(topics)) AND (COALESCE(cardinality(keys), cardinality(topics)) = cardinality(topics)) AND (COALESCE(cardinality(headers), cardinality(topics)) = cardinality(topics)) AND (COALESCE(cardinality(partitions), cardinality(topics)) = cardinality(topics)) AND (COALESCE(cardinality(timestamps_ms), cardinality(topics)) = cardinality(topics)))),
    CONSTRAINT session_output_key_bounds CHECK (((session_key <> ''::text) AND (octet_length(session_key) <= 1024))),
    CONSTRAINT session_output_natural CHECK (((lane >= 0) AND (revision >= 0))),
    CONSTRAINT session_output_sessions_natural CHECK ((((0 <= ALL (session_partitions)) IS TRUE) AND ((0 <= ALL (session_starts)) IS TRUE) AND ((0 <= ALL (session_ends)) IS TRUE) AND ((1 <= ALL (session_events)) IS TRUE) AND ((0 <= ALL (session_outputs)) IS TRUE) AND ((''::text <> ALL (session_topic_ids)) IS TRUE) AND (array_position(session_started_ms, NULL::bigint) IS NULL) AND (array_position(session_ended_ms, NULL::bigint) IS NULL))),
    CONSTRAINT session_output_sessions_parallel CHECK (((cardinality(session_ends) > 0) AND (cardinality(session_topic_ids) = cardinality(session_ends)) AND (cardinality(session_partitions) = cardinality(session_ends)) AND (cardinality(session_starts) = cardinality(session_ends)) AND (cardinality(session_started_ms) = cardinality(session_ends)) AND (cardinality(session_ended_ms) = cardinality(session_ends)) AND (cardinality(session_events) = cardinality(session_ends)) AND (cardinality(session_outputs) = cardinality(session_ends)))),
    CONSTRAINT session_output_topics_named CHECK (((''::text <> ALL (topics)) IS TRUE))
)
WITH (toast_tuple_target='8160');

--
-- Name: writer; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.writer (
    singleton boolean DEFAULT true NOT NULL,
    run_id uuid,
    host text,
    pid integer,
    backend_pid integer,
    backend_start timestamp with time zone,
    heartbeat_at timestamp with time zone,
    started_at timestamp with time zone,
    held_back_since timestamp with time zone,
    held_back_because text,
    CONSTRAINT writer_held_back_whole CHECK ((num_nulls(held_back_since, held_back_because) = ANY (ARRAY[0, 2]))),
    CONSTRAINT writer_one_row CHECK (singleton),
    CONSTRAINT writer_whole CHECK ((num_nulls(run_id, host, pid, backend_pid, heartbeat_at, started_at) = ANY (ARRAY[0, 6])))
);

--
-- Name: session_output_p00000000; Type: TABLE ATTACH; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.session_output ATTACH PARTITION outbox.session_output_p00000000 FOR VALUES FROM ('0') TO ('10000');

--
-- Name: session_output_p00000001; Type: TABLE ATTACH; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.session_output ATTACH PARTITION outbox.session_output_p00000001 FOR VALUES FROM ('10000') TO ('20000');

--
-- Name: alembic_version alembic_version_pkc; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);

--
-- Name: batch batch_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.batch
    ADD CONSTRAINT batch_pkey PRIMARY KEY (batch_id);

--
-- Name: batch batch_stream_position_key; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.batch
    ADD CONSTRAINT batch_stream_position_key UNIQUE (generation, spark_batch, part);

--
-- Name: bucket bucket_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.bucket
    ADD CONSTRAINT bucket_pkey PRIMARY KEY (generation, bucket);

--
-- Name: dead_letter dead_letter_identity_key; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.dead_letter
    ADD CONSTRAINT dead_letter_identity_key UNIQUE (topic_id, partition, first_offset, reason, revision);

--
-- Name: dead_letter dead_letter_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.dead_letter
    ADD CONSTRAINT dead_letter_pkey PRIMARY KEY (dead_letter_id);

--
-- Name: delivery delivery_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.delivery
    ADD CONSTRAINT delivery_pkey PRIMARY KEY (epoch, lane, seq);

--
-- Name: generation generation_directory_token_key; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.generation
    ADD CONSTRAINT generation_directory_token_key UNIQUE (directory_token);

--
-- Name: generation generation_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.generation
    ADD CONSTRAINT generation_pkey PRIMARY KEY (generation);

--
-- Name: identity identity_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.identity
    ADD CONSTRAINT identity_pkey PRIMARY KEY (singleton);

--
-- Name: lane_epoch lane_epoch_from_batch_key; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.lane_epoch
    ADD CONSTRAINT lane_epoch_from_batch_key UNIQUE (from_batch);

--
-- Name: lane_epoch lane_epoch_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.lane_epoch
    ADD CONSTRAINT lane_epoch_pkey PRIMARY KEY (epoch);

--
-- Name: lane lane_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.lane
    ADD CONSTRAINT lane_pkey PRIMARY KEY (epoch, lane);

--
-- Name: parked parked_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.parked
    ADD CONSTRAINT parked_pkey PRIMARY KEY (session_key, batch_id);

--
-- Name: publisher_process publisher_process_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.publisher_process
    ADD CONSTRAINT publisher_process_pkey PRIMARY KEY (process_id);

--
-- Name: replay_key replay_key_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.replay_key
    ADD CONSTRAINT replay_key_pkey PRIMARY KEY (replay_id, session_key);

--
-- Name: replay replay_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.replay
    ADD CONSTRAINT replay_pkey PRIMARY KEY (replay_id);

--
-- Name: replay replay_uuid_key; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.replay
    ADD CONSTRAINT replay_uuid_key UNIQUE (replay_uuid);

--
-- Name: request request_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.request
    ADD CONSTRAINT request_pkey PRIMARY KEY (request_id);

--
-- Name: run run_number_key; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.run
    ADD CONSTRAINT run_number_key UNIQUE (number);

--
-- Name: run run_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.run
    ADD CONSTRAINT run_pkey PRIMARY KEY (run_id);

--
-- Name: savepoint savepoint_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.savepoint
    ADD CONSTRAINT savepoint_pkey PRIMARY KEY (savepoint_id);

--
-- Name: session_output session_output_key; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.session_output
    ADD CONSTRAINT session_output_key UNIQUE (session_key, batch_id);

--
-- Name: session_output_p00000000 session_output_p00000000_key; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.session_output_p00000000
    ADD CONSTRAINT session_output_p00000000_key UNIQUE (session_key, batch_id);

--
-- Name: session_output_p00000001 session_output_p00000001_key; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.session_output_p00000001
    ADD CONSTRAINT session_output_p00000001_key UNIQUE (session_key, batch_id);

--
-- Name: writer writer_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.writer
    ADD CONSTRAINT writer_pkey PRIMARY KEY (singleton);

--
-- Name: batch_created_at_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX batch_created_at_idx ON outbox.batch USING btree (created_at);

--
-- Name: dead_letter_open_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX dead_letter_open_idx ON outbox.dead_letter USING btree (reason, created_at) WHERE (state = 'open'::text);

--
-- Name: dead_letter_place_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX dead_letter_place_idx ON outbox.dead_letter USING btree (session_key, topic_id, partition, first_offset);

--
-- Name: delivery_committed_at_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX delivery_committed_at_idx ON outbox.delivery USING btree (committed_at);

--
-- Name: publisher_process_alive_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX publisher_process_alive_idx ON outbox.publisher_process USING btree (alive_until) WHERE (ended_at IS NULL);

--
-- Name: request_open_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX request_open_idx ON outbox.request USING btree (run_id) WHERE (answered_at IS NULL);

--
-- Name: savepoint_name_key; Type: INDEX; Schema: outbox; Owner: -
--

CREATE UNIQUE INDEX savepoint_name_key ON outbox.savepoint USING btree (name) WHERE (deleted_at IS NULL);

--
-- Name: session_output_cursor_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX session_output_cursor_idx ON ONLY outbox.session_output USING btree (lane, batch_id, session_key);

--
-- Name: session_output_p00000000_cursor_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX session_output_p00000000_cursor_idx ON outbox.session_output_p00000000 USING btree (lane, batch_id, session_key);

--
-- Name: session_output_p00000001_cursor_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX session_output_p00000001_cursor_idx ON outbox.session_output_p00000001 USING btree (lane, batch_id, session_key);

--
-- Name: session_output_p00000000_cursor_idx; Type: INDEX ATTACH; Schema: outbox; Owner: -
--

ALTER INDEX outbox.session_output_cursor_idx ATTACH PARTITION outbox.session_output_p00000000_cursor_idx;

--
-- Name: session_output_p00000000_key; Type: INDEX ATTACH; Schema: outbox; Owner: -
--

ALTER INDEX outbox.session_output_key ATTACH PARTITION outbox.session_output_p00000000_key;

--
-- Name: session_output_p00000001_cursor_idx; Type: INDEX ATTACH; Schema: outbox; Owner: -
--

ALTER INDEX outbox.session_output_cursor_idx ATTACH PARTITION outbox.session_output_p00000001_cursor_idx;

--
-- Name: session_output_p00000001_key; Type: INDEX ATTACH; Schema: outbox; Owner: -
--

ALTER INDEX outbox.session_output_key ATTACH PARTITION outbox.session_output_p00000001_key;

--
-- Name: batch batch_generation_fkey; Type: FK CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.batch
    ADD CONSTRAINT batch_generation_fkey FOREIGN KEY (generation) REFERENCES outbox.generation(generation);

--
-- Name: bucket bucket_generation_fkey; Type: FK CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.bucket
    ADD CONSTRAINT bucket_generation_fkey FOREIGN KEY (generation) REFERENCES outbox.generation(generation);

--
-- Name: dead_letter dead_letter_generation_fkey; Type: FK CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.dead_letter
    ADD CONSTRAINT dead_letter_generation_fkey FOREIGN KEY (generation) REFERENCES outbox.generation(generation);

--
-- Name: delivery delivery_lane_fkey; Type: FK CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.delivery
    ADD CONSTRAINT delivery_lane_fkey FOREIGN KEY (epoch, lane) REFERENCES outbox.lane(epoch, lane);

--
-- Name: lane lane_epoch_fkey; Type: FK CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.lane
    ADD CONSTRAINT lane_epoch_fkey FOREIGN KEY (epoch) REFERENCES outbox.lane_epoch(epoch);

--
-- Name: parked parked_lane_fkey; Type: FK CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.parked
    ADD CONSTRAINT parked_lane_fkey FOREIGN KEY (epoch, lane) REFERENCES outbox.lane(epoch, lane);

--
-- Name: replay_key replay_key_replay_fkey; Type: FK CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.replay_key
    ADD CONSTRAINT replay_key_replay_fkey FOREIGN KEY (replay_id) REFERENCES outbox.replay(replay_id);

--
-- Name: run run_generation_fkey; Type: FK CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.run
    ADD CONSTRAINT run_generation_fkey FOREIGN KEY (generation) REFERENCES outbox.generation(generation);

--
-- Name: savepoint savepoint_batch_fkey; Type: FK CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.savepoint
    ADD CONSTRAINT savepoint_batch_fkey FOREIGN KEY (batch_id) REFERENCES outbox.batch(batch_id);

--
-- Name: savepoint savepoint_generation_fkey; Type: FK CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.savepoint
    ADD CONSTRAINT savepoint_generation_fkey FOREIGN KEY (generation) REFERENCES outbox.generation(generation);

--
-- Name: SCHEMA outbox; Type: ACL; Schema: -; Owner: -
--

GRANT USAGE ON SCHEMA outbox TO outbox_writer;
GRANT USAGE ON SCHEMA outbox TO outbox_publisher;
GRANT USAGE ON SCHEMA outbox TO outbox_auditor;

--
-- Name: FUNCTION change_lanes(new_lanes integer, OUT epoch integer, OUT from_batch bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.change_lanes(new_lanes integer, OUT epoch integer, OUT from_batch bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.change_lanes(new_lanes integer, OUT epoch integer, OUT from_batch bigint) TO outbox_publisher;

--
-- Name: FUNCTION ensure_partitions(first_batch bigint, last_batch bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.ensure_partitions(first_batch bigint, last_batch bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.ensure_partitions(first_batch bigint, last_batch bigint) TO outbox_writer;

--
-- Name: FUNCTION requeue(session_keys text[], batch_ids bigint[], lanes integer[], lane_count integer, run_id uuid); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.requeue(session_keys text[], batch_ids bigint[], lanes integer[], lane_count integer, run_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.requeue(session_keys text[], batch_ids bigint[], lanes integer[], lane_count integer, run_id uuid) TO outbox_publisher;

--
-- Name: FUNCTION server_identity(OUT system_identifier bigint, OUT timeline integer); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.server_identity(OUT system_identifier bigint, OUT timeline integer) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.server_identity(OUT system_identifier bigint, OUT timeline integer) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.server_identity(OUT system_identifier bigint, OUT timeline integer) TO outbox_publisher;
GRANT ALL ON FUNCTION outbox.server_identity(OUT system_identifier bigint, OUT timeline integer) TO outbox_auditor;

--
-- Name: FUNCTION total("values" integer[]); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.total("values" integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.total("values" integer[]) TO outbox_writer;

--
-- Name: FUNCTION try_json(value bytea); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.try_json(value bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.try_json(value bytea) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.try_json(value bytea) TO outbox_publisher;
GRANT ALL ON FUNCTION outbox.try_json(value bytea) TO outbox_auditor;

--
-- Name: TABLE alembic_version; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.alembic_version TO outbox_writer;
GRANT SELECT ON TABLE outbox.alembic_version TO outbox_publisher;
GRANT SELECT ON TABLE outbox.alembic_version TO outbox_auditor;

--
-- Name: TABLE batch; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT,INSERT ON TABLE outbox.batch TO outbox_writer;
GRANT SELECT ON TABLE outbox.batch TO outbox_publisher;
GRANT SELECT ON TABLE outbox.batch TO outbox_auditor;

--
-- Name: COLUMN batch.recomputed_at; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(recomputed_at) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: COLUMN batch.recomputed_hash; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(recomputed_hash) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: TABLE bucket; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT,INSERT ON TABLE outbox.bucket TO outbox_writer;
GRANT SELECT ON TABLE outbox.bucket TO outbox_auditor;

--
-- Name: COLUMN bucket.batch_id; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(batch_id) ON TABLE outbox.bucket TO outbox_writer;

--
-- Name: COLUMN bucket.open_sessions; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(open_sessions) ON TABLE outbox.bucket TO outbox_writer;

--
-- Name: COLUMN bucket.open_events; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(open_events) ON TABLE outbox.bucket TO outbox_writer;

--
-- Name: COLUMN bucket.open_bytes; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(open_bytes) ON TABLE outbox.bucket TO outbox_writer;

--
-- Name: COLUMN bucket.state_bytes; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(state_bytes) ON TABLE outbox.bucket TO outbox_writer;

--
-- Name: COLUMN bucket.oldest_open; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(oldest_open) ON TABLE outbox.bucket TO outbox_writer;

--
-- Name: TABLE dead_letter; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT,INSERT ON TABLE outbox.dead_letter TO outbox_writer;
GRANT SELECT ON TABLE outbox.dead_letter TO outbox_auditor;

--
-- Name: COLUMN dead_letter.state; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(state) ON TABLE outbox.dead_letter TO outbox_writer;

--
-- Name: COLUMN dead_letter.resolved_batch; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(resolved_batch) ON TABLE outbox.dead_letter TO outbox_writer;

--
-- Name: COLUMN dead_letter.state_changed_at; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(state_changed_at) ON TABLE outbox.dead_letter TO outbox_writer;

--
-- Name: TABLE delivery; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT,INSERT ON TABLE outbox.delivery TO outbox_publisher;
GRANT SELECT ON TABLE outbox.delivery TO outbox_auditor;

--
-- Name: TABLE lane; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.lane TO outbox_writer;
GRANT SELECT,INSERT ON TABLE outbox.lane TO outbox_publisher;
GRANT SELECT ON TABLE outbox.lane TO outbox_auditor;

--
-- Name: COLUMN lane.lease_token; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(lease_token) ON TABLE outbox.lane TO outbox_publisher;

--
-- Name: COLUMN lane.lease_holder; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(lease_holder) ON TABLE outbox.lane TO outbox_publisher;

--
-- Name: COLUMN lane.lease_until; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(lease_until) ON TABLE outbox.lane TO outbox_publisher;

--
-- Name: COLUMN lane.lease_backend_pid; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(lease_backend_pid) ON TABLE outbox.lane TO outbox_publisher;

--
-- Name: COLUMN lane.lease_backend_start; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(lease_backend_start) ON TABLE outbox.lane TO outbox_publisher;

--
-- Name: COLUMN lane.seq; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(seq) ON TABLE outbox.lane TO outbox_publisher;

--
-- Name: COLUMN lane.cursor_batch; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(cursor_batch) ON TABLE outbox.lane TO outbox_publisher;

--
-- Name: COLUMN lane.cursor_key; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(cursor_key) ON TABLE outbox.lane TO outbox_publisher;

--
-- Name: COLUMN lane.cursor_commit_id; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(cursor_commit_id) ON TABLE outbox.lane TO outbox_publisher;

--
-- Name: COLUMN lane.sessions; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(sessions) ON TABLE outbox.lane TO outbox_publisher;

--
-- Name: COLUMN lane.events; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(events) ON TABLE outbox.lane TO outbox_publisher;

--
-- Name: COLUMN lane.stopped_reason; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(stopped_reason) ON TABLE outbox.lane TO outbox_publisher;

--
-- Name: COLUMN lane.mirrored_at; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(mirrored_at) ON TABLE outbox.lane TO outbox_publisher;

--
-- Name: COLUMN lane.stopped_why; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(stopped_why) ON TABLE outbox.lane TO outbox_publisher;

--
-- Name: TABLE lane_epoch; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT,INSERT ON TABLE outbox.lane_epoch TO outbox_writer;
GRANT SELECT ON TABLE outbox.lane_epoch TO outbox_publisher;
GRANT SELECT ON TABLE outbox.lane_epoch TO outbox_auditor;

--
-- Name: TABLE parked; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.parked TO outbox_writer;
GRANT SELECT,INSERT ON TABLE outbox.parked TO outbox_publisher;
GRANT SELECT ON TABLE outbox.parked TO outbox_auditor;

--
-- Name: COLUMN parked.state; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(state) ON TABLE outbox.parked TO outbox_publisher;

--
-- Name: COLUMN parked.state_changed_at; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(state_changed_at) ON TABLE outbox.parked TO outbox_publisher;

--
-- Name: TABLE session_output; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT,INSERT ON TABLE outbox.session_output TO outbox_writer;
GRANT SELECT ON TABLE outbox.session_output TO outbox_publisher;
GRANT SELECT ON TABLE outbox.session_output TO outbox_auditor;

--
-- Name: TABLE event; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.event TO outbox_writer;
GRANT SELECT ON TABLE outbox.event TO outbox_publisher;
GRANT SELECT ON TABLE outbox.event TO outbox_auditor;

--
-- Name: TABLE generation; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT,INSERT ON TABLE outbox.generation TO outbox_writer;
GRANT SELECT ON TABLE outbox.generation TO outbox_publisher;
GRANT SELECT ON TABLE outbox.generation TO outbox_auditor;

--
-- Name: TABLE identity; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.identity TO outbox_writer;
GRANT SELECT ON TABLE outbox.identity TO outbox_publisher;
GRANT SELECT ON TABLE outbox.identity TO outbox_auditor;

--
-- Name: COLUMN identity.system_identifier; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(system_identifier) ON TABLE outbox.identity TO outbox_publisher;

--
-- Name: COLUMN identity.timeline; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(timeline) ON TABLE outbox.identity TO outbox_publisher;

--
-- Name: COLUMN identity.cluster_id; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(cluster_id) ON TABLE outbox.identity TO outbox_publisher;

--
-- Name: COLUMN identity.transactional_id_prefix; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(transactional_id_prefix) ON TABLE outbox.identity TO outbox_publisher;

--
-- Name: COLUMN identity.output_topic_ids; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(output_topic_ids) ON TABLE outbox.identity TO outbox_publisher;

--
-- Name: TABLE publisher_process; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT,INSERT ON TABLE outbox.publisher_process TO outbox_publisher;
GRANT SELECT ON TABLE outbox.publisher_process TO outbox_auditor;

--
-- Name: COLUMN publisher_process.alive_until; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(alive_until) ON TABLE outbox.publisher_process TO outbox_publisher;

--
-- Name: COLUMN publisher_process.backend_pid; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(backend_pid) ON TABLE outbox.publisher_process TO outbox_publisher;

--
-- Name: COLUMN publisher_process.backend_start; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(backend_start) ON TABLE outbox.publisher_process TO outbox_publisher;

--
-- Name: COLUMN publisher_process.ended_at; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(ended_at) ON TABLE outbox.publisher_process TO outbox_publisher;

--
-- Name: TABLE replay; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT,INSERT ON TABLE outbox.replay TO outbox_publisher;
GRANT SELECT ON TABLE outbox.replay TO outbox_auditor;

--
-- Name: COLUMN replay.state; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(state) ON TABLE outbox.replay TO outbox_publisher;

--
-- Name: COLUMN replay.reason; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(reason) ON TABLE outbox.replay TO outbox_publisher;

--
-- Name: COLUMN replay.events_per_second; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(events_per_second) ON TABLE outbox.replay TO outbox_publisher;

--
-- Name: COLUMN replay.lease_token; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(lease_token) ON TABLE outbox.replay TO outbox_publisher;

--
-- Name: COLUMN replay.lease_holder; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(lease_holder) ON TABLE outbox.replay TO outbox_publisher;

--
-- Name: COLUMN replay.lease_until; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(lease_until) ON TABLE outbox.replay TO outbox_publisher;

--
-- Name: COLUMN replay.lease_backend_pid; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(lease_backend_pid) ON TABLE outbox.replay TO outbox_publisher;

--
-- Name: COLUMN replay.lease_backend_start; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(lease_backend_start) ON TABLE outbox.replay TO outbox_publisher;

--
-- Name: COLUMN replay.seq; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(seq) ON TABLE outbox.replay TO outbox_publisher;

--
-- Name: COLUMN replay.cursor_batch; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(cursor_batch) ON TABLE outbox.replay TO outbox_publisher;

--
-- Name: COLUMN replay.cursor_key; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(cursor_key) ON TABLE outbox.replay TO outbox_publisher;

--
-- Name: COLUMN replay.rows_sent; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(rows_sent) ON TABLE outbox.replay TO outbox_publisher;

--
-- Name: COLUMN replay.events_sent; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(events_sent) ON TABLE outbox.replay TO outbox_publisher;

--
-- Name: COLUMN replay.rows_skipped; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(rows_skipped) ON TABLE outbox.replay TO outbox_publisher;

--
-- Name: COLUMN replay.measured_rate; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(measured_rate) ON TABLE outbox.replay TO outbox_publisher;

--
-- Name: COLUMN replay.state_changed_at; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(state_changed_at) ON TABLE outbox.replay TO outbox_publisher;

--
-- Name: TABLE replay_key; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT,INSERT ON TABLE outbox.replay_key TO outbox_publisher;
GRANT SELECT ON TABLE outbox.replay_key TO outbox_auditor;

--
-- Name: TABLE request; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT,INSERT ON TABLE outbox.request TO outbox_writer;
GRANT SELECT ON TABLE outbox.request TO outbox_auditor;

--
-- Name: COLUMN request.answered_at; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(answered_at) ON TABLE outbox.request TO outbox_writer;

--
-- Name: COLUMN request.outcome; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(outcome) ON TABLE outbox.request TO outbox_writer;

--
-- Name: COLUMN request.answer; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(answer) ON TABLE outbox.request TO outbox_writer;

--
-- Name: TABLE run; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT,INSERT ON TABLE outbox.run TO outbox_writer;
GRANT SELECT ON TABLE outbox.run TO outbox_auditor;

--
-- Name: COLUMN run.ended_at; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(ended_at) ON TABLE outbox.run TO outbox_writer;

--
-- Name: COLUMN run.ended_because; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(ended_because) ON TABLE outbox.run TO outbox_writer;

--
-- Name: TABLE savepoint; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT,INSERT ON TABLE outbox.savepoint TO outbox_writer;
GRANT SELECT ON TABLE outbox.savepoint TO outbox_auditor;

--
-- Name: COLUMN savepoint.deleted_at; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(deleted_at) ON TABLE outbox.savepoint TO outbox_writer;

--
-- Name: TABLE writer; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.writer TO outbox_writer;
GRANT SELECT ON TABLE outbox.writer TO outbox_auditor;

--
-- Name: COLUMN writer.run_id; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(run_id) ON TABLE outbox.writer TO outbox_writer;

--
-- Name: COLUMN writer.host; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(host) ON TABLE outbox.writer TO outbox_writer;

--
-- Name: COLUMN writer.pid; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(pid) ON TABLE outbox.writer TO outbox_writer;

--
-- Name: COLUMN writer.backend_pid; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(backend_pid) ON TABLE outbox.writer TO outbox_writer;

--
-- Name: COLUMN writer.backend_start; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(backend_start) ON TABLE outbox.writer TO outbox_writer;

--
-- Name: COLUMN writer.heartbeat_at; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(heartbeat_at) ON TABLE outbox.writer TO outbox_writer;

--
-- Name: COLUMN writer.started_at; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(started_at) ON TABLE outbox.writer TO outbox_writer;

--
-- Name: COLUMN writer.held_back_since; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(held_back_since) ON TABLE outbox.writer TO outbox_writer;

--
-- Name: COLUMN writer.held_back_because; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(held_back_because) ON TABLE outbox.writer TO outbox_writer;
