-- What `outbox-migrate up` makes. Written by `python -m db.dump > db/schema.sql`; do not edit.

--
-- Name: outbox; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA outbox;

--
-- Name: archive_leases(text); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.archive_leases(partition_name text) RETURNS TABLE(replay_id bigint, lease_token bigint, lease_until timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT r.replay_id, CASE WHEN r.cursor_batch <= a.to_batch THEN r.lease_token END, CASE WHEN r.cursor_batch <= a.to_batch THEN r.lease_until END
    FROM outbox.archived a
    JOIN outbox.replay r ON r.from_archive AND r.from_batch <= a.to_batch AND r.to_batch >= a.from_batch
    WHERE a.partition_name = archive_leases.partition_name
$$;

--
-- Name: FUNCTION archive_leases(partition_name text); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.archive_leases(partition_name text) IS 'The replays that read the archive of a partition, and their leases until they are past it: a replay that sent rows of it meanwhile is not as it was.';

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
ALTER TABLE ONLY outbox.session_output ALTER COLUMN session_key SET STATISTICS 0;
ALTER TABLE ONLY outbox.session_output ALTER COLUMN "values" SET STATISTICS 0;
ALTER TABLE ONLY outbox.session_output ALTER COLUMN keys SET STATISTICS 0;
ALTER TABLE ONLY outbox.session_output ALTER COLUMN headers SET STATISTICS 0;

--
-- Name: batch_rows(bigint, bigint); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.batch_rows(from_batch bigint, to_batch bigint) RETURNS SETOF outbox.session_output
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT o.session_key,
     o.batch_id,
     o.lane,
     o.revision,
     o.session_topic_ids,
     o.session_partitions,
     o.session_starts,
     o.session_ends,
     o.session_started_ms,
     o.session_ended_ms,
     o.session_events,
     o.session_outputs,
     o.topics,
     o."values",
     o.keys,
     o.headers,
     o.partitions,
     o.timestamps_ms
    FROM outbox.session_output o
   WHERE ((o.lane = ANY (ARRAY( SELECT generate_series(0, (( SELECT COALESCE(max(e.lanes), 0) AS "coalesce"
                    FROM outbox.lane_epoch e) - 1)) AS generate_series))) AND (o.batch_id >= batch_rows.from_batch) AND (o.batch_id <= batch_rows.to_batch))
 UNION ALL
  SELECT o.session_key,
     o.batch_id,
     o.lane,
     o.revision,
     o.session_topic_ids,
     o.session_partitions,
     o.session_starts,
     o.session_ends,
     o.session_started_ms,
     o.session_ended_ms,
     o.session_events,
     o.session_outputs,
     o.topics,
     o."values",
     o.keys,
     o.headers,
     o.partitions,
     o.timestamps_ms
    FROM outbox.session_output o
   WHERE ((o.lane >= ( SELECT COALESCE(max(e.lanes), 0) AS "coalesce"
            FROM outbox.lane_epoch e)) AND (o.batch_id >= batch_rows.from_batch) AND (o.batch_id <= batch_rows.to_batch));
END;

--
-- Name: FUNCTION batch_rows(from_batch bigint, to_batch bigint); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.batch_rows(from_batch bigint, to_batch bigint) IS 'The rows of a range of batches, both inclusive.';

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
    input_events bigint DEFAULT 0 NOT NULL,
    sessions integer DEFAULT 0 NOT NULL,
    output_events bigint DEFAULT 0 NOT NULL,
    dead_letters integer DEFAULT 0 NOT NULL,
    duplicate_events integer DEFAULT 0 NOT NULL,
    transform_fingerprint text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    output_bytes bigint DEFAULT 0 NOT NULL,
    open_state jsonb,
    CONSTRAINT batch_counts_natural CHECK ((LEAST(spark_batch, input_events, (sessions)::bigint, output_events, (dead_letters)::bigint, (duplicate_events)::bigint) >= 0)),
    CONSTRAINT batch_kind_known CHECK ((kind = ANY (ARRAY['stream'::text, 'retry'::text, 'requeue'::text]))),
    CONSTRAINT batch_offsets_objects CHECK (((jsonb_typeof(start_offsets) = 'object'::text) AND (jsonb_typeof(end_offsets) = 'object'::text) AND (jsonb_typeof(open_state) = 'object'::text))),
    CONSTRAINT batch_output_bytes_natural CHECK ((output_bytes >= 0)),
    CONSTRAINT batch_positive CHECK (((batch_id > 0) AND (part >= 0))),
    CONSTRAINT batch_stream_offsets CHECK (
CASE kind
    WHEN 'stream'::text THEN (num_nulls(spark_batch, start_offsets, end_offsets) = 0)
    ELSE (num_nonnulls(spark_batch, start_offsets, end_offsets, open_state) = 0)
END)
);
ALTER TABLE ONLY outbox.batch ALTER COLUMN open_state SET STATISTICS 0;

--
-- Name: COLUMN batch.spark_batch; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.batch.spark_batch IS 'Spark''s number of the batch, which begins anew with each run; NULL: no batch of the stream';

--
-- Name: COLUMN batch.open_state; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.batch.open_state IS 'what is open at end_offsets: {topic id: {partition: {"safe", "sessions", "events", "bytes", "digest", "tombstones", "upgraded"}}}. safe: offset of the oldest event of an open session; digest: of what is open, begins with its form; missing where it is not known, and any other form is as if missing; tombstones: base64, missing where there are none; upgraded: true from the upgrade to 0005 until the partition has records. A partition that is not named has nothing open. NULL: written before 0005, and not the newest of its generation';

--
-- Name: erased; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.erased (
    erased_id bigint NOT NULL,
    erased_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    key_hash bytea,
    dead_letter_id bigint,
    batch_id bigint NOT NULL,
    generation integer NOT NULL,
    epoch integer,
    lane integer,
    revision integer NOT NULL,
    topic_ids text[] NOT NULL,
    partitions integer[] NOT NULL,
    ends bigint[] NOT NULL,
    outputs integer[] NOT NULL,
    output_bytes bigint NOT NULL,
    topics text[] NOT NULL,
    delivered_by bigint[] NOT NULL,
    was_parked boolean NOT NULL,
    CONSTRAINT erased_parallel CHECK (((cardinality(ends) > 0) AND (cardinality(topic_ids) = cardinality(ends)) AND (cardinality(partitions) = cardinality(ends)) AND (cardinality(outputs) = cardinality(ends)))),
    CONSTRAINT erased_row_or_letter CHECK (
CASE
    WHEN (dead_letter_id IS NULL) THEN (num_nulls(key_hash, lane) = 0)
    ELSE (num_nonnulls(epoch, lane) = 0)
END)
);

--
-- Name: TABLE erased; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON TABLE outbox.erased IS 'What stands for each row of session_output and each dead letter that `publisher erase` has taken out.';

--
-- Name: COLUMN erased.erased_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased.erased_id IS 'number of the row';

--
-- Name: COLUMN erased.erased_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased.erased_at IS 'when it was erased';

--
-- Name: COLUMN erased.key_hash; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased.key_hash IS 'outbox.key_hash(session key); NULL: a dead letter without a key';

--
-- Name: COLUMN erased.dead_letter_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased.dead_letter_id IS 'number of the dead letter; NULL: a row of session_output';

--
-- Name: COLUMN erased.batch_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased.batch_id IS 'the batch it was committed with';

--
-- Name: COLUMN erased.generation; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased.generation IS 'of that batch; if the ledger had it no more, of the next batch of the stream';

--
-- Name: COLUMN erased.epoch; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased.epoch IS 'lane epoch of that batch; NULL: a dead letter';

--
-- Name: COLUMN erased.lane; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased.lane IS 'its lane; NULL: a dead letter';

--
-- Name: COLUMN erased.revision; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased.revision IS 'its revision';

--
-- Name: COLUMN erased.topic_ids; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased.topic_ids IS 'of each of its sessions: Kafka''s id of the input topic';

--
-- Name: COLUMN erased.partitions; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased.partitions IS 'input partition';

--
-- Name: COLUMN erased.ends; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased.ends IS 'offset of the session''s last event';

--
-- Name: COLUMN erased.outputs; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased.outputs IS 'how many outputs the session had';

--
-- Name: COLUMN erased.output_bytes; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased.output_bytes IS 'bytes of all values';

--
-- Name: COLUMN erased.topics; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased.topics IS 'output topics, each once';

--
-- Name: COLUMN erased.delivered_by; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased.delivered_by IS 'seq of each delivery of the lane that counts it';

--
-- Name: COLUMN erased.was_parked; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased.was_parked IS 'it was put aside: outbox.parked had it';

--
-- Name: output_partition; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.output_partition AS
 SELECT c.oid AS relation,
    c.relname AS name,
    r.from_batch,
    (r.end_batch - 1) AS to_batch,
    i.inhdetachpending AS detaching
   FROM (((pg_inherits i
     JOIN pg_class c ON ((c.oid = i.inhrelid)))
     CROSS JOIN LATERAL ( SELECT pg_get_expr(c.relpartbound, (0)::oid) AS bound
         OFFSET 0) e)
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN (e.bound ~~ 'FOR VALUES FROM (''%'') TO (''%'')'::text) THEN (split_part(e.bound, ''''::text, 2))::bigint
                    ELSE NULL::bigint
                END AS from_batch,
                CASE
                    WHEN (e.bound ~~ 'FOR VALUES FROM (''%'') TO (''%'')'::text) THEN (split_part(e.bound, ''''::text, 4))::bigint
                    ELSE NULL::bigint
                END AS end_batch) r)
  WHERE ((i.inhparent = ('outbox.session_output'::regclass)::oid) AND (r.from_batch IS NOT NULL));

--
-- Name: VIEW output_partition; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.output_partition IS 'Partitions of session_output: which batches'' rows are kept. Both bounds inclusive.';

--
-- Name: check_batch_counts(bigint, bigint); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.check_batch_counts(from_batch bigint, to_batch bigint) RETURNS TABLE(batch_id bigint, in_ledger boolean, ledger_sessions bigint, ledger_events bigint, ledger_bytes bigint, row_sessions bigint, row_events bigint, row_bytes bigint)
    LANGUAGE sql STABLE ROWS 10 PARALLEL SAFE
    BEGIN ATOMIC
 SELECT COALESCE(b.batch_id, r.batch_id) AS "coalesce",
     (b.batch_id IS NOT NULL),
     (b.sessions)::bigint AS sessions,
     b.output_events,
     b.output_bytes,
     (COALESCE(r.sessions, (0)::bigint) + COALESCE(e.sessions, (0)::bigint)),
     (COALESCE(r.events, (0)::bigint) + COALESCE(e.events, (0)::bigint)),
     (COALESCE(r.bytes, (0)::bigint) + COALESCE(e.bytes, (0)::bigint))
    FROM ((( SELECT l.batch_id,
             l.sessions,
             l.output_events,
             l.output_bytes
            FROM outbox.batch l
           WHERE ((l.batch_id >= check_batch_counts.from_batch) AND (l.batch_id <= check_batch_counts.to_batch))) b
      FULL JOIN ( SELECT n.batch_id,
             sum(n.sessions) AS sessions,
             sum(n.events) AS events,
             (sum(n.bytes))::bigint AS bytes
            FROM ( SELECT o.batch_id,
                     cardinality(o.session_ends) AS sessions,
                     cardinality(o.topics) AS events,
                     ( SELECT COALESCE(sum(length(v.v)), (0)::bigint) AS "coalesce"
                            FROM unnest(o."values") v(v)) AS bytes
                    FROM outbox.batch_rows(check_batch_counts.from_batch, check_batch_counts.to_batch) o(session_key, batch_id, lane, revision, session_topic_ids, session_partitions, session_starts, session_ends, session_started_ms, session_ended_ms, session_events, session_outputs, topics, "values", keys, headers, partitions, timestamps_ms)
                  OFFSET 0) n
           GROUP BY n.batch_id) r ON ((r.batch_id = b.batch_id)))
      LEFT JOIN ( SELECT x.batch_id,
             sum(cardinality(x.ends)) AS sessions,
             (sum(outbox.total(x.outputs)))::bigint AS events,
             (sum(x.output_bytes))::bigint AS bytes
            FROM outbox.erased x
           WHERE ((x.lane IS NOT NULL) AND (x.batch_id >= check_batch_counts.from_batch) AND (x.batch_id <= check_batch_counts.to_batch))
           GROUP BY x.batch_id) e ON ((e.batch_id = b.batch_id)))
   WHERE
         CASE
             WHEN (b.batch_id IS NULL) THEN true
             WHEN (((b.sessions IS DISTINCT FROM (COALESCE(r.sessions, (0)::bigint) + COALESCE(e.sessions, (0)::bigint))) OR (b.output_events IS DISTINCT FROM (COALESCE(r.events, (0)::bigint) + COALESCE(e.events, (0)::bigint)))) OR (b.output_bytes IS DISTINCT FROM (COALESCE(r.bytes, (0)::bigint) + COALESCE(e.bytes, (0)::bigint)))) THEN ((r.batch_id IS NOT NULL) OR (( SELECT range_agg(int8range(p.from_batch, p.to_batch, '[]'::text)) AS range_agg
                FROM outbox.output_partition p
               WHERE (NOT p.detaching)) @> b.batch_id))
             ELSE false
         END;
END;

--
-- Name: FUNCTION check_batch_counts(from_batch bigint, to_batch bigint); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.check_batch_counts(from_batch bigint, to_batch bigint) IS 'Check: batches of a range whose ledger row and rows disagree.';

--
-- Name: cursor_covers(bigint, text, bigint, text, bigint, text); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.cursor_covers(after_batch bigint, after_key text, to_batch bigint, to_key text, batch_id bigint, session_key text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((batch_id >= after_batch) AND (batch_id <= to_batch) AND (ROW(batch_id, (session_key COLLATE "C")) > ROW((after_batch + ((after_key IS NULL))::integer), COALESCE(after_key, ''::text))) AND ((to_key IS NULL) OR (ROW(batch_id, (session_key COLLATE "C")) <= ROW(to_batch, to_key))));

--
-- Name: FUNCTION cursor_covers(after_batch bigint, after_key text, to_batch bigint, to_key text, batch_id bigint, session_key text); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.cursor_covers(after_batch bigint, after_key text, to_batch bigint, to_key text, batch_id bigint, session_key text) IS 'Whether a row is after the first cursor and not after the second.';

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
    committed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    kind text DEFAULT 'delivery'::text NOT NULL,
    note text,
    CONSTRAINT delivery_after_key_in_batch CHECK (((after_batch > 0) OR (after_key IS NULL))),
    CONSTRAINT delivery_forward CHECK (((after_batch <= to_batch) OR (kind = 'resume'::text))),
    CONSTRAINT delivery_kafka_offsets_object CHECK ((jsonb_typeof(kafka_offsets) = 'object'::text)),
    CONSTRAINT delivery_kind_known CHECK ((kind = ANY (ARRAY['delivery'::text, 'resume'::text]))),
    CONSTRAINT delivery_natural CHECK (((seq > 0) AND ((to_batch > 0) OR (kind = 'resume'::text)) AND (LEAST(after_batch, to_batch, sessions, events) >= 0)))
);
ALTER TABLE ONLY outbox.delivery ALTER COLUMN after_key SET STATISTICS 0;
ALTER TABLE ONLY outbox.delivery ALTER COLUMN to_key SET STATISTICS 0;

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
    after_seq bigint DEFAULT 0 NOT NULL,
    CONSTRAINT parked_after_seq_natural CHECK ((after_seq >= 0)),
    CONSTRAINT parked_reason_known CHECK ((reason = ANY (ARRAY['too_large'::text, 'invalid'::text, 'topic_missing'::text]))),
    CONSTRAINT parked_requeued_by CHECK (((state = 'requeued'::text) = (requeued_batch IS NOT NULL))),
    CONSTRAINT parked_requeued_later CHECK ((requeued_batch > batch_id)),
    CONSTRAINT parked_state_known CHECK ((state = ANY (ARRAY['parked'::text, 'requeued'::text, 'discarded'::text])))
);
ALTER TABLE ONLY outbox.parked ALTER COLUMN session_key SET STATISTICS 0;
ALTER TABLE ONLY outbox.parked ALTER COLUMN detail SET STATISTICS 0;

--
-- Name: COLUMN parked.after_seq; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.parked.after_seq IS 'newest transaction of its lane when it was parked: later ones do not hold it';

--
-- Name: check_delivery_counts; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.check_delivery_counts AS
 SELECT d.epoch,
    d.lane,
    d.seq,
    d.after_batch,
    d.after_key,
    d.to_batch,
    d.to_key,
    d.sessions,
    d.events,
    (r.sessions + e.sessions) AS row_sessions,
    (r.events + e.events) AS row_events
   FROM ((outbox.delivery d
     CROSS JOIN LATERAL ( SELECT COALESCE(sum(cardinality(o.session_ends)), (0)::bigint) AS sessions,
            COALESCE(sum(cardinality(o.topics)), (0)::bigint) AS events
           FROM outbox.session_output o
          WHERE ((o.lane = d.lane) AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key) AND (NOT (EXISTS ( SELECT
                   FROM outbox.parked p
                  WHERE ((p.session_key = o.session_key) AND (p.batch_id = o.batch_id) AND (p.after_seq < d.seq))))))) r)
     CROSS JOIN LATERAL ( SELECT COALESCE(sum(cardinality(x.ends)), (0)::bigint) AS sessions,
            (COALESCE(sum(outbox.total(x.outputs)), (0)::numeric))::bigint AS events
           FROM outbox.erased x
          WHERE ((x.epoch = d.epoch) AND (x.lane = d.lane) AND ((x.batch_id >= d.after_batch) AND (x.batch_id <= d.to_batch)) AND (d.seq = ANY (x.delivered_by)))) e)
  WHERE ((d.kind = 'delivery'::text) AND (d.after_batch IS NOT NULL));

--
-- Name: VIEW check_delivery_counts; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.check_delivery_counts IS 'What each delivery says it sent, beside what its cursor range holds.';

--
-- Name: check_delivery_counts(bigint, bigint); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.check_delivery_counts(from_batch bigint, to_batch bigint) RETURNS SETOF outbox.check_delivery_counts
    LANGUAGE plpgsql STABLE ROWS 10 PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
END $_$;

--
-- Name: FUNCTION check_delivery_counts(from_batch bigint, to_batch bigint); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.check_delivery_counts(from_batch bigint, to_batch bigint) IS 'What each delivery that ends in a range of batches says it sent, beside what its cursor range holds.';

--
-- Name: check_emitted_twice(bigint, bigint); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.check_emitted_twice(from_batch bigint, to_batch bigint) RETURNS TABLE(session_key text, revision integer, topic_id text, partition integer, end_offset bigint, times bigint, first_batch bigint, last_batch bigint)
    LANGUAGE sql STABLE ROWS 10 PARALLEL SAFE
    BEGIN ATOMIC
 SELECT min(o.session_key) AS min,
     o.revision,
     o.topic_id,
     o.partition,
     o.end_offset,
     count(*) AS count,
     min(o.batch_id) AS min,
     max(o.batch_id) AS max
    FROM ( SELECT r.session_key,
             r.batch_id,
             r.revision,
             s.topic_id,
             s.partition,
             s.end_offset
            FROM (outbox.batch_rows(check_emitted_twice.from_batch, check_emitted_twice.to_batch) r(session_key, batch_id, lane, revision, session_topic_ids, session_partitions, session_starts, session_ends, session_started_ms, session_ended_ms, session_events, session_outputs, topics, "values", keys, headers, partitions, timestamps_ms)
              CROSS JOIN LATERAL UNNEST(r.session_topic_ids, r.session_partitions, r.session_ends) s(topic_id, partition, end_offset))
           WHERE (NOT (EXISTS ( SELECT
                    FROM outbox.parked p
                   WHERE ((p.session_key = r.session_key) AND (p.batch_id = r.batch_id)))))
         UNION ALL
          SELECT NULL::text,
             x.batch_id,
             x.revision,
             s.topic_id,
             s.partition,
             s.end_offset
            FROM (outbox.erased x
              CROSS JOIN LATERAL UNNEST(x.topic_ids, x.partitions, x.ends) s(topic_id, partition, end_offset))
           WHERE ((x.lane IS NOT NULL) AND (NOT x.was_parked) AND (x.batch_id >= check_emitted_twice.from_batch) AND (x.batch_id <= check_emitted_twice.to_batch))) o
   GROUP BY o.topic_id, o.partition, o.end_offset, o.revision
  HAVING (count(*) > 1);
END;

--
-- Name: FUNCTION check_emitted_twice(from_batch bigint, to_batch bigint); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.check_emitted_twice(from_batch bigint, to_batch bigint) IS 'Check: sessions emitted more than once for a revision within a range of batches.';

--
-- Name: check_parked; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.check_parked AS
 SELECT p.batch_id,
    p.session_key,
    p.epoch,
    p.lane,
    p.requeued_batch,
    w.detail
   FROM (((outbox.parked p
     LEFT JOIN outbox.session_output o ON (((o.session_key = p.session_key) AND (o.batch_id = p.batch_id))))
     LEFT JOIN outbox.session_output c ON (((c.session_key = p.session_key) AND (c.batch_id = p.requeued_batch))))
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN ((p.state = 'parked'::text) AND (o.batch_id IS NULL)) THEN 'parked, but the row is gone'::text
                    WHEN ((p.state = 'requeued'::text) AND (c.batch_id IS NULL)) THEN (('requeued as batch '::text || p.requeued_batch) || ', which does not hold it'::text)
                    WHEN ((p.state = 'requeued'::text) AND (o.batch_id IS NOT NULL) AND (((((((((((c.revision IS DISTINCT FROM o.revision) OR (c.session_topic_ids IS DISTINCT FROM o.session_topic_ids)) OR (c.session_partitions IS DISTINCT FROM o.session_partitions)) OR (c.session_ends IS DISTINCT FROM o.session_ends)) OR (c.session_outputs IS DISTINCT FROM o.session_outputs)) OR (c.topics IS DISTINCT FROM o.topics)) OR (c."values" IS DISTINCT FROM o."values")) OR (c.keys IS DISTINCT FROM o.keys)) OR (c.headers IS DISTINCT FROM o.headers)) OR (c.partitions IS DISTINCT FROM o.partitions)) OR (c.timestamps_ms IS DISTINCT FROM o.timestamps_ms))) THEN (('its copy in batch '::text || p.requeued_batch) || ' differs'::text)
                    ELSE NULL::text
                END AS detail) w)
  WHERE ((w.detail IS NOT NULL) AND ((p.state = 'parked'::text) OR (EXISTS ( SELECT
           FROM outbox.output_partition k
          WHERE ((NOT k.detaching) AND (p.requeued_batch >= k.from_batch) AND (p.requeued_batch <= k.to_batch))))));

--
-- Name: VIEW check_parked; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.check_parked IS 'Check: parked rows that are gone, requeued ones whose copy is missing or differs.';

--
-- Name: check_parked_rows(bigint, bigint); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.check_parked_rows(from_batch bigint, to_batch bigint) RETURNS SETOF outbox.check_parked
    LANGUAGE plpgsql STABLE ROWS 10 PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
END $_$;

--
-- Name: FUNCTION check_parked_rows(from_batch bigint, to_batch bigint); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.check_parked_rows(from_batch bigint, to_batch bigint) IS 'Check: parked rows of a range of batches that are gone, requeued ones whose copy is missing or differs.';

--
-- Name: epoch_range; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.epoch_range AS
 SELECT epoch,
    from_batch,
    (lead(from_batch) OVER (ORDER BY epoch) - 1) AS to_batch,
    lanes,
    created_at
   FROM outbox.lane_epoch e;

--
-- Name: VIEW epoch_range; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.epoch_range IS 'Lane epochs with their first and last batch; to_batch NULL: the newest epoch.';

--
-- Name: check_stray_row; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.check_stray_row AS
 WITH RECURSIVE most AS (
         SELECT COALESCE(max(e.lanes), 0) AS lanes,
            COALESCE(min(e.from_batch), (0)::bigint) AS from_batch
           FROM outbox.lane_epoch e
        ), beyond(lane) AS (
         SELECT ( SELECT min(r.lane) AS min
                   FROM outbox.session_output r
                  WHERE (r.lane >= most.lanes)) AS min
           FROM most
        UNION ALL
         SELECT ( SELECT min(r.lane) AS min
                   FROM outbox.session_output r
                  WHERE (r.lane > b.lane)) AS min
           FROM beyond b
          WHERE (b.lane IS NOT NULL)
        )
 SELECT o.batch_id,
    o.session_key,
    o.lane,
    e.epoch,
    e.lanes
   FROM (((most
     CROSS JOIN outbox.epoch_range e)
     CROSS JOIN LATERAL generate_series(e.lanes, (most.lanes - 1)) n(lane))
     CROSS JOIN LATERAL ( SELECT r.batch_id,
            r.session_key,
            r.lane
           FROM outbox.session_output r
          WHERE ((r.lane = n.lane) AND (r.batch_id >= e.from_batch) AND (r.batch_id <= COALESCE(e.to_batch, '9223372036854775807'::bigint)))
         OFFSET 0) o)
UNION ALL
 SELECT o.batch_id,
    o.session_key,
    o.lane,
    e.epoch,
    e.lanes
   FROM ((beyond b
     CROSS JOIN LATERAL ( SELECT r.batch_id,
            r.session_key,
            r.lane
           FROM outbox.session_output r
          WHERE (r.lane = b.lane)
         OFFSET 0) o)
     LEFT JOIN outbox.epoch_range e ON (((o.batch_id >= e.from_batch) AND (o.batch_id <= COALESCE(e.to_batch, '9223372036854775807'::bigint)))))
  WHERE (b.lane IS NOT NULL)
UNION ALL
 SELECT o.batch_id,
    o.session_key,
    o.lane,
    NULL::integer AS epoch,
    NULL::integer AS lanes
   FROM ((most
     CROSS JOIN LATERAL generate_series(0, (most.lanes - 1)) n(lane))
     CROSS JOIN LATERAL ( SELECT r.batch_id,
            r.session_key,
            r.lane
           FROM outbox.session_output r
          WHERE ((r.lane = n.lane) AND (r.batch_id < most.from_batch))
         OFFSET 0) o);

--
-- Name: VIEW check_stray_row; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.check_stray_row IS 'Check: rows whose lane their epoch does not have.';

--
-- Name: check_stray_rows(bigint, bigint); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.check_stray_rows(from_batch bigint, to_batch bigint) RETURNS SETOF outbox.check_stray_row
    LANGUAGE plpgsql STABLE ROWS 10 PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
END $_$;

--
-- Name: FUNCTION check_stray_rows(from_batch bigint, to_batch bigint); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.check_stray_rows(from_batch bigint, to_batch bigint) IS 'Check: rows of a range of batches whose lane their epoch does not have.';

--
-- Name: cursor_text(bigint, text); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.cursor_text(batch_id bigint, session_key text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (('batch '::text || batch_id) || COALESCE(((' at '''::text || session_key) || ''''::text), ''::text));

--
-- Name: FUNCTION cursor_text(batch_id bigint, session_key text); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.cursor_text(batch_id bigint, session_key text) IS 'A cursor in words.';

--
-- Name: generation; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.generation (
    generation integer NOT NULL,
    start_offsets jsonb NOT NULL,
    topics jsonb NOT NULL,
    reason text NOT NULL,
    policy text NOT NULL,
    revision integer DEFAULT 0 NOT NULL,
    assembly jsonb NOT NULL,
    run_id uuid NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    from_generation integer,
    from_batch bigint,
    savepoint text COLLATE pg_catalog."C",
    explanation text DEFAULT ''::text NOT NULL,
    cut_offsets jsonb,
    open_state jsonb DEFAULT '{}'::jsonb NOT NULL,
    lineage jsonb DEFAULT '[]'::jsonb NOT NULL,
    accepted_deliveries jsonb,
    CONSTRAINT generation_accepted_array CHECK ((jsonb_typeof(accepted_deliveries) = 'array'::text)),
    CONSTRAINT generation_continues_one CHECK (((from_generation < generation) AND ((from_batch IS NULL) OR (from_generation IS NOT NULL)))),
    CONSTRAINT generation_cut_object CHECK ((jsonb_typeof(cut_offsets) = 'object'::text)),
    CONSTRAINT generation_lineage_array CHECK ((jsonb_typeof(lineage) = 'array'::text)),
    CONSTRAINT generation_objects CHECK (((jsonb_typeof(start_offsets) = 'object'::text) AND (jsonb_typeof(open_state) = 'object'::text) AND (jsonb_typeof(topics) = 'object'::text) AND (jsonb_typeof(assembly) = 'object'::text))),
    CONSTRAINT generation_policy_known CHECK ((policy = ANY (ARRAY['skip'::text, 'reissue'::text]))),
    CONSTRAINT generation_positive CHECK ((generation > 0)),
    CONSTRAINT generation_reason_known CHECK ((reason = ANY (ARRAY['first'::text, 'checkpoint_lost'::text, 'savepoint'::text, 'rescale'::text, 'outbox_behind'::text, 'new_topic'::text, 'data_loss'::text, 'changed_assembly'::text, 'requested'::text, 'upgrade'::text, 'truncation'::text, 'fork'::text, 'skip'::text]))),
    CONSTRAINT generation_revision_natural CHECK ((revision >= 0)),
    CONSTRAINT generation_savepoint_named CHECK (((savepoint IS NOT NULL) = (reason = 'savepoint'::text)))
);
ALTER TABLE ONLY outbox.generation ALTER COLUMN open_state SET STATISTICS 0;

--
-- Name: COLUMN generation.start_offsets; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.generation.start_offsets IS 'the position that it begins at: what closes below it was judged before';

--
-- Name: COLUMN generation.open_state; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.generation.open_state IS 'what is open at start_offsets, as in outbox.batch';

--
-- Name: COLUMN generation.lineage; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.generation.lineage IS 'the assembly descriptions that judged what is open at start_offsets, and from where on: [{"assembly": {...}, "start": {topic id: {partition: offset}}}]. Its own judges from start_offsets on; empty: from the beginning';

--
-- Name: COLUMN generation.accepted_deliveries; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.generation.accepted_deliveries IS 'newest records of the publisher''s lanes that name batches which the ledger has lost, as a person accepted when it was opened: [{"batch_id": 7, "commit_id": "..."}]. They stop no start again; the lanes wait for `publisher resume`';

--
-- Name: audit_ledger; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_ledger AS
 SELECT b.batch_id,
    'missing'::text AS problem,
    b.generation,
    g.first_missing,
    (b.batch_id - 1) AS last_missing,
        CASE
            WHEN (g.first_missing = (b.batch_id - 1)) THEN (('batch '::text || g.first_missing) || ' is missing'::text)
            ELSE (((('batches '::text || g.first_missing) || ' to '::text) || (b.batch_id - 1)) || ' are missing'::text)
        END AS detail
   FROM ((( SELECT GREATEST((1)::bigint, min(p.from_batch)) AS batch_id
           FROM outbox.output_partition p
          WHERE (NOT p.detaching)) kept
     JOIN outbox.batch b ON ((b.batch_id > kept.batch_id)))
     CROSS JOIN LATERAL ( SELECT GREATEST(kept.batch_id, (COALESCE(( SELECT max(f.batch_id) AS max
                   FROM outbox.batch f
                  WHERE (f.batch_id < b.batch_id)), (0)::bigint) + 1)) AS first_missing) g)
  WHERE (NOT (EXISTS ( SELECT
           FROM outbox.batch f
          WHERE (f.batch_id = (b.batch_id - 1)))))
UNION ALL
 SELECT b.batch_id,
    'discontinuous'::text AS problem,
    b.generation,
    NULL::bigint AS first_missing,
    NULL::bigint AS last_missing,
    ((((((((((((((('generation '::text || b.generation) || ': batch '::text) || b.batch_id) || ' (Spark batch '::text) || b.spark_batch) || ', part '::text) || b.part) || ') does not continue batch '::text) || f.batch_id) || ' (Spark batch '::text) || f.spark_batch) || ', part '::text) || f.part) || ')'::text) || COALESCE(( SELECT (': '::text || string_agg(((((((t.id || '/'::text) || p.partition) || ' from '::text) || COALESCE((b.start_offsets #>> ARRAY[t.id, p.partition]), 'nowhere'::text)) || ', not '::text) || p.last), ', '::text ORDER BY t.id, p.partition))
           FROM (jsonb_each(f.end_offsets) t(id, partitions)
             CROSS JOIN LATERAL jsonb_each_text(t.partitions) p(partition, last))
          WHERE (((b.run_id <> f.run_id) OR (b.spark_batch <> f.spark_batch)) AND ((b.start_offsets #>> ARRAY[t.id, p.partition]) IS DISTINCT FROM p.last))), ''::text)) AS detail
   FROM (outbox.batch b
     CROSS JOIN LATERAL ( SELECT f_1.batch_id,
            f_1.run_id,
            f_1.spark_batch,
            f_1.part,
            f_1.start_offsets,
            f_1.end_offsets
           FROM outbox.batch f_1
          WHERE ((f_1.generation = b.generation) AND (f_1.kind = 'stream'::text) AND (f_1.batch_id < b.batch_id))
          ORDER BY f_1.batch_id DESC
         LIMIT 1) f)
  WHERE ((b.kind = 'stream'::text) AND (NOT
        CASE
            WHEN ((b.run_id = f.run_id) AND (b.spark_batch = f.spark_batch)) THEN ((b.part = (f.part + 1)) AND (b.start_offsets = f.start_offsets) AND (b.end_offsets = f.end_offsets))
            ELSE ((b.part = 0) AND (b.start_offsets @> f.end_offsets))
        END) AND ((f.batch_id >= (( SELECT GREATEST((1)::bigint, min(p.from_batch)) AS "greatest"
           FROM outbox.output_partition p
          WHERE (NOT p.detaching)) - 1)) OR (((b.batch_id - f.batch_id) - 1) <= ( SELECT count(*) AS count
           FROM outbox.batch k
          WHERE ((k.batch_id > f.batch_id) AND (k.batch_id < b.batch_id))))))
UNION ALL
 SELECT b.batch_id,
    'discontinuous'::text AS problem,
    g.generation,
    NULL::bigint AS first_missing,
    NULL::bigint AS last_missing,
    ((((((((('generation '::text || g.generation) || ': batch '::text) || b.batch_id) || ' (Spark batch '::text) || b.spark_batch) || ', part '::text) || b.part) || ') does not begin where its generation does'::text) || COALESCE(( SELECT (': '::text || string_agg(((((((t.id || '/'::text) || p.partition) || ' from '::text) || COALESCE((b.start_offsets #>> ARRAY[t.id, p.partition]), 'nowhere'::text)) || ', not '::text) || p.first), ', '::text ORDER BY t.id, p.partition))
           FROM (jsonb_each(g.start_offsets) t(id, partitions)
             CROSS JOIN LATERAL jsonb_each_text(t.partitions) p(partition, first))
          WHERE ((b.start_offsets #>> ARRAY[t.id, p.partition]) IS DISTINCT FROM p.first)), ''::text)) AS detail
   FROM ((outbox.generation g
     CROSS JOIN LATERAL ( SELECT n.batch_id,
            n.spark_batch,
            n.part,
            n.start_offsets
           FROM outbox.batch n
          WHERE ((n.generation = g.generation) AND (n.kind = 'stream'::text))
          ORDER BY n.batch_id
         LIMIT 1) b)
     CROSS JOIN LATERAL ( SELECT COALESCE(max(n.batch_id), (0)::bigint) AS batch_id
           FROM (outbox.generation e
             CROSS JOIN LATERAL ( SELECT x.batch_id
                   FROM outbox.batch x
                  WHERE ((x.generation = e.generation) AND (x.kind = 'stream'::text))
                  ORDER BY x.batch_id DESC
                 LIMIT 1) n)
          WHERE (e.generation < g.generation)) f)
  WHERE ((g.generation >= ( SELECT COALESCE(max(u.generation), 0) AS "coalesce"
           FROM outbox.generation u
          WHERE (u.reason = 'upgrade'::text))) AND (NOT ((b.part = 0) AND (b.start_offsets @> g.start_offsets))) AND (((b.batch_id - f.batch_id) - 1) <= ( SELECT count(*) AS count
           FROM outbox.batch k
          WHERE ((k.batch_id > f.batch_id) AND (k.batch_id < b.batch_id)))))
UNION ALL
 SELECT b.batch_id,
    'offsets'::text AS problem,
    b.generation,
    NULL::bigint AS first_missing,
    NULL::bigint AS last_missing,
    (((((((t.id || '/'::text) || p.partition) || ': start '::text) || o.first) || ', end '::text) || o.last) || COALESCE((', safe '::text || o.safe), ''::text)) AS detail
   FROM (((outbox.batch b
     CROSS JOIN LATERAL jsonb_each(b.end_offsets) t(id, partitions))
     CROSS JOIN LATERAL jsonb_each_text(t.partitions) p(partition, last))
     CROSS JOIN LATERAL ( SELECT COALESCE(((b.start_offsets #>> ARRAY[t.id, p.partition]))::bigint, (0)::bigint) AS first,
            (p.last)::bigint AS last,
            ((b.open_state #>> ARRAY[t.id, p.partition, 'safe'::text]))::bigint AS safe) o)
  WHERE ((b.kind = 'stream'::text) AND ((o.first > o.last) OR (o.safe > o.last)))
UNION ALL
 SELECT b.batch_id,
    'time'::text AS problem,
    b.generation,
    NULL::bigint AS first_missing,
    NULL::bigint AS last_missing,
    ((((('committed at '::text || b.created_at) || ', before batch '::text) || f.batch_id) || ' at '::text) || f.created_at) AS detail
   FROM (outbox.batch b
     JOIN outbox.batch f ON ((f.batch_id = (b.batch_id - 1))))
  WHERE (b.created_at < f.created_at);

--
-- Name: VIEW audit_ledger; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_ledger IS 'Breaks of the ledger: no rows when all is well. Ask by batch_id for a part.';

--
-- Name: COLUMN audit_ledger.batch_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_ledger.batch_id IS 'the batch that does not fit what is before it';

--
-- Name: COLUMN audit_ledger.problem; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_ledger.problem IS 'missing: ids left out before it; discontinuous: it does not begin where its generation''s former batch ended, or where its generation begins; offsets: end before start or safe after end; time: committed before its predecessor';

--
-- Name: COLUMN audit_ledger.generation; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_ledger.generation IS 'period with one assembly description and one revision (outbox.generation)';

--
-- Name: COLUMN audit_ledger.first_missing; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_ledger.first_missing IS 'first id left out';

--
-- Name: COLUMN audit_ledger.last_missing; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_ledger.last_missing IS 'last id left out';

--
-- Name: COLUMN audit_ledger.detail; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_ledger.detail IS 'in words';

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
    pruned_seq bigint DEFAULT 0 NOT NULL,
    taken bigint DEFAULT 0 NOT NULL,
    pruned_parked bigint DEFAULT 0 NOT NULL,
    CONSTRAINT lane_cursor_committed CHECK (((cursor_batch = 0) = (cursor_commit_id IS NULL))),
    CONSTRAINT lane_cursor_key_in_batch CHECK (((cursor_batch > 0) OR (cursor_key IS NULL))),
    CONSTRAINT lane_lease_whole CHECK ((num_nulls(lease_holder, lease_until, lease_backend_pid) = ANY (ARRAY[0, 3]))),
    CONSTRAINT lane_natural CHECK ((LEAST((lane)::bigint, lease_token, seq, cursor_batch, sessions, events) >= 0)),
    CONSTRAINT lane_pruned_natural CHECK ((pruned_seq >= 0)),
    CONSTRAINT lane_pruned_parked_natural CHECK ((pruned_parked >= 0)),
    CONSTRAINT lane_stopped_whole CHECK (((stopped_why IS NULL) OR (stopped_reason IS NOT NULL))),
    CONSTRAINT lane_taken_natural CHECK ((taken >= 0))
);
ALTER TABLE ONLY outbox.lane ALTER COLUMN cursor_key SET STATISTICS 0;
ALTER TABLE ONLY outbox.lane ALTER COLUMN stopped_reason SET STATISTICS 0;

--
-- Name: COLUMN lane.stopped_reason; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.lane.stopped_reason IS 'why the lane is stopped, with the commands that mend it; without stopped_why: why it retries by itself';

--
-- Name: COLUMN lane.stopped_why; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.lane.stopped_why IS 'the reason as a word; null while the lane is not stopped';

--
-- Name: COLUMN lane.pruned_seq; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.lane.pruned_seq IS 'deliveries of this lane up to this seq are pruned; resumes among them may be kept';

--
-- Name: COLUMN lane.taken; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.lane.taken IS 'how often a publisher process took the lane, the same one again included; counted since schema 0007';

--
-- Name: COLUMN lane.pruned_parked; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.lane.pruned_parked IS 'parked rows of this lane that retention has deleted';

--
-- Name: check_delivery_chain; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.check_delivery_chain AS
 SELECT d.epoch,
    d.lane,
    d.seq,
    d.after_batch,
    d.to_batch,
    GREATEST((1)::bigint, ((d.seq - f.seq) - 1)) AS missing,
        CASE
            WHEN (d.seq <> (f.seq + 1)) THEN ((('after delivery '::text || f.seq) || ' comes '::text) || d.seq)
            ELSE ((((('delivery '::text || d.seq) || ' begins after '::text) || outbox.cursor_text(d.after_batch, d.after_key)) || ', the one before it ended with '::text) || outbox.cursor_text(f.to_batch, f.to_key))
        END AS detail
   FROM ((((outbox.delivery d
     JOIN outbox.lane_epoch e ON ((e.epoch = d.epoch)))
     LEFT JOIN outbox.lane l ON (((l.epoch = d.epoch) AND (l.lane = d.lane))))
     LEFT JOIN LATERAL ( SELECT k.seq,
            k.to_batch,
            k.to_key
           FROM outbox.delivery k
          WHERE ((k.epoch = d.epoch) AND (k.lane = d.lane) AND (k.seq < d.seq) AND (k.seq > COALESCE(l.pruned_seq, (0)::bigint)))
          ORDER BY k.seq DESC
         LIMIT 1) former ON (true))
     CROSS JOIN LATERAL ( SELECT COALESCE(former.seq, l.pruned_seq, (0)::bigint) AS seq,
                CASE
                    WHEN (former.seq IS NOT NULL) THEN former.to_batch
                    WHEN (d.seq = 1) THEN (e.from_batch - 1)
                    ELSE NULL::bigint
                END AS to_batch,
            former.to_key) f)
  WHERE ((d.kind = 'delivery'::text) AND ((d.seq <> (f.seq + 1)) OR ((d.after_batch IS NOT NULL) AND (f.to_batch IS NOT NULL) AND ((d.after_batch IS DISTINCT FROM f.to_batch) OR (d.after_key IS DISTINCT FROM f.to_key)))));

--
-- Name: VIEW check_delivery_chain; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.check_delivery_chain IS 'Check: deliveries that do not continue the one before them.';

--
-- Name: check_mirror; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.check_mirror AS
 SELECT l.epoch,
    l.lane,
    w.detail
   FROM ((((outbox.lane l
     LEFT JOIN outbox.batch b ON ((b.batch_id = l.cursor_batch)))
     LEFT JOIN LATERAL ( SELECT d.seq,
            d.to_batch,
            d.to_key
           FROM outbox.delivery d
          WHERE ((d.epoch = l.epoch) AND (d.lane = l.lane))
          ORDER BY d.seq DESC
         LIMIT 1) n ON (true))
     LEFT JOIN LATERAL ( SELECT
                CASE
                    WHEN bool_or((d.kind = 'resume'::text)) THEN (0)::bigint
                    ELSE min(d.seq)
                END AS first_seq,
            sum(d.sessions) AS sessions,
            sum(d.events) AS events
           FROM outbox.delivery d
          WHERE ((d.epoch = l.epoch) AND (d.lane = l.lane))) s ON (true))
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN (l.seq <> COALESCE(n.seq, (0)::bigint)) THEN ((('the mirror is at transaction '::text || l.seq) || ', the newest delivery is '::text) || COALESCE((n.seq)::text, 'missing'::text))
                    WHEN (((l.cursor_batch IS DISTINCT FROM n.to_batch) OR (l.cursor_key IS DISTINCT FROM n.to_key)) AND (n.seq IS NOT NULL)) THEN ((('the mirror is at '::text || outbox.cursor_text(l.cursor_batch, l.cursor_key)) || ', the newest delivery at '::text) || outbox.cursor_text(n.to_batch, n.to_key))
                    WHEN ((l.cursor_batch > 0) AND (b.commit_id IS DISTINCT FROM l.cursor_commit_id)) THEN ((('the mirror is at '::text || outbox.cursor_text(l.cursor_batch, l.cursor_key)) || ', and the ledger has '::text) ||
                    CASE
                        WHEN (b.commit_id IS NULL) THEN 'no such batch'::text
                        ELSE 'another batch of this number'::text
                    END)
                    WHEN ((s.first_seq = 1) AND (((l.sessions)::numeric IS DISTINCT FROM s.sessions) OR ((l.events)::numeric IS DISTINCT FROM s.events))) THEN ((((((('the mirror counts '::text || l.sessions) || ' sessions with '::text) || l.events) || ' events, its deliveries '::text) || s.sessions) || ' with '::text) || s.events)
                    ELSE NULL::text
                END AS detail) w)
  WHERE (w.detail IS NOT NULL);

--
-- Name: VIEW check_mirror; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.check_mirror IS 'Check: lanes whose mirror is not their newest delivery, or not of this ledger.';

--
-- Name: lane_position; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.lane_position AS
 SELECT e.epoch,
    n.lane,
    e.from_batch,
    e.to_batch,
    COALESCE(l.seq, (0)::bigint) AS seq,
    COALESCE(l.cursor_batch, (0)::bigint) AS cursor_batch,
    l.cursor_key,
    GREATEST((e.from_batch - 1), COALESCE((l.cursor_batch - ((l.cursor_key IS NOT NULL))::integer), (0)::bigint)) AS through_batch,
    COALESCE(((l.cursor_batch = e.to_batch) AND (l.cursor_key IS NULL)), false) AS ended,
    LEAST(( SELECT COALESCE(max(b.batch_id), (0)::bigint) AS "coalesce"
           FROM outbox.batch b), e.to_batch) AS last_batch,
    COALESCE(l.sessions, (0)::bigint) AS sessions,
    COALESCE(l.events, (0)::bigint) AS events,
    l.lease_holder,
    l.lease_until,
    COALESCE(((l.lease_until >= now()) AND ((l.lease_backend_start < pg_postmaster_start_time()) OR (EXISTS ( SELECT
           FROM pg_stat_activity a
          WHERE ((a.pid = l.lease_backend_pid) AND ((a.backend_start = l.lease_backend_start) IS NOT FALSE)))))), false) AS held,
    l.stopped_reason,
    l.stopped_why,
    l.mirrored_at
   FROM ((outbox.epoch_range e
     CROSS JOIN LATERAL generate_series(0, (e.lanes - 1)) n(lane))
     LEFT JOIN outbox.lane l ON (((l.epoch = e.epoch) AND (l.lane = n.lane))));

--
-- Name: VIEW lane_position; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.lane_position IS 'Where each lane of each epoch is, also those that no publisher has run yet. through_batch: the last batch of which nothing is left; last_batch: the last one that it has to deliver so far; ended: it has come to its epoch''s end; held: a living process holds its lease.';

--
-- Name: check_rows_kept; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.check_rows_kept AS
 SELECT ('session_output_p'::text || lpad(((batch_id / 10000))::text, 8, '0'::text)) AS partition,
    min(batch_id) AS from_batch,
    max(batch_id) AS to_batch,
    sum(sessions) AS sessions
   FROM outbox.batch b
  WHERE ((batch_id > ( SELECT min(l.through_batch) AS min
           FROM outbox.lane_position l
          WHERE (NOT l.ended))) AND (sessions > 0) AND ((( SELECT range_agg(int8range(p.from_batch, p.to_batch, '[]'::text)) AS range_agg
           FROM outbox.output_partition p
          WHERE (NOT p.detaching)) @> batch_id) IS NOT TRUE) AND (EXISTS ( SELECT
           FROM outbox.lane_position l
          WHERE ((NOT l.ended) AND (l.through_batch < b.batch_id) AND (l.from_batch <= b.batch_id) AND (l.last_batch >= b.batch_id) AND (NOT (EXISTS ( SELECT
                   FROM outbox.delivery d
                  WHERE ((d.epoch = l.epoch) AND (d.lane = l.lane) AND (int8range(LEAST(d.after_batch, d.to_batch), d.to_batch, '[]'::text) && int8range(b.batch_id, NULL::bigint))))))))))
  GROUP BY (batch_id / 10000);

--
-- Name: VIEW check_rows_kept; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.check_rows_kept IS 'Check: partitions of session_output that are not there, with rows that were not delivered.';

--
-- Name: audit_reconcile(bigint, bigint); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.audit_reconcile(from_batch bigint DEFAULT NULL::bigint, to_batch bigint DEFAULT NULL::bigint) RETURNS TABLE(check_name text, severity text, epoch integer, lane integer, batch_id bigint, session_key text, detail text)
    LANGUAGE sql STABLE ROWS 10 PARALLEL SAFE
    BEGIN ATOMIC
 SELECT ('ledger_'::text || l.problem),
         CASE l.problem
             WHEN 'missing'::text THEN 'critical'::text
             ELSE 'error'::text
         END AS "case",
     NULL::integer AS int4,
     NULL::integer AS int4,
     l.batch_id,
     NULL::text AS text,
     l.detail
    FROM outbox.audit_ledger l
   WHERE ((l.problem <> 'time'::text) AND (l.batch_id >= COALESCE(audit_reconcile.from_batch, (0)::bigint)) AND (l.batch_id <= COALESCE(audit_reconcile.to_batch, '9223372036854775807'::bigint)))
 UNION ALL
  SELECT
         CASE
             WHEN c.in_ledger THEN 'batch_counts'::text
             ELSE 'rows_in_ledger'::text
         END AS "case",
     'critical'::text,
     NULL::integer,
     NULL::integer,
     c.batch_id,
     NULL::text,
         CASE
             WHEN c.in_ledger THEN ((((((((((('the ledger says '::text || c.ledger_sessions) || ' sessions, '::text) || c.ledger_events) || ' outputs, '::text) || c.ledger_bytes) || ' bytes; its rows hold '::text) || c.row_sessions) || ', '::text) || c.row_events) || ', '::text) || c.row_bytes)
             ELSE (('rows with '::text || c.row_sessions) || ' sessions, and no ledger row'::text)
         END AS "case"
    FROM outbox.check_batch_counts(COALESCE(audit_reconcile.from_batch, (0)::bigint), COALESCE(audit_reconcile.to_batch, '9223372036854775807'::bigint)) c(batch_id, in_ledger, ledger_sessions, ledger_events, ledger_bytes, row_sessions, row_events, row_bytes)
 UNION ALL
  SELECT 'rows_kept'::text,
     'critical'::text,
     NULL::integer,
     NULL::integer,
     k.from_batch,
     NULL::text,
     (((((((k.partition || ' is not there, and of its '::text) || k.sessions) || ' sessions in batches '::text) || k.from_batch) || ' to '::text) || k.to_batch) || ' some were not delivered'::text)
    FROM outbox.check_rows_kept k
   WHERE ((k.to_batch >= COALESCE(audit_reconcile.from_batch, (0)::bigint)) AND (k.from_batch <= COALESCE(audit_reconcile.to_batch, '9223372036854775807'::bigint)))
 UNION ALL
  SELECT 'lanes'::text,
     'critical'::text,
     s.epoch,
     s.lane,
     s.batch_id,
     s.session_key,
         CASE
             WHEN (s.epoch IS NULL) THEN 'no epoch begins before it'::text
             ELSE (((('epoch '::text || s.epoch) || ' has '::text) || s.lanes) || ' lanes'::text)
         END AS "case"
    FROM outbox.check_stray_rows(COALESCE(audit_reconcile.from_batch, (0)::bigint), COALESCE(audit_reconcile.to_batch, '9223372036854775807'::bigint)) s(batch_id, session_key, lane, epoch, lanes)
 UNION ALL
  SELECT 'emitted_once'::text,
     'critical'::text,
     NULL::integer,
     NULL::integer,
     t.last_batch,
     t.session_key,
     ((((((((((('the session ending at '::text || t.topic_id) || '/'::text) || t.partition) || '/'::text) || t.end_offset) || ' was emitted '::text) || t.times) || ' times for revision '::text) || t.revision) || ', first in batch '::text) || t.first_batch)
    FROM outbox.check_emitted_twice(COALESCE(audit_reconcile.from_batch, (0)::bigint), COALESCE(audit_reconcile.to_batch, '9223372036854775807'::bigint)) t(session_key, revision, topic_id, partition, end_offset, times, first_batch, last_batch)
 UNION ALL
  SELECT 'delivery_chain'::text,
     'error'::text,
     d.epoch,
     d.lane,
     d.to_batch,
     NULL::text,
     d.detail
    FROM outbox.check_delivery_chain d
   WHERE ((d.to_batch >= COALESCE(audit_reconcile.from_batch, (0)::bigint)) AND (COALESCE(d.after_batch, (0)::bigint) <= COALESCE(audit_reconcile.to_batch, '9223372036854775807'::bigint)))
 UNION ALL
  SELECT 'delivery_counts'::text,
     'critical'::text,
     d.epoch,
     d.lane,
     d.to_batch,
     NULL::text,
     ((((((((((((('delivery '::text || d.seq) || ' says '::text) || d.sessions) || ' sessions with '::text) || d.events) || ' outputs; its range from '::text) || outbox.cursor_text(d.after_batch, d.after_key)) || ' (exclusive) to '::text) || outbox.cursor_text(d.to_batch, d.to_key)) || ' holds '::text) || d.row_sessions) || ' with '::text) || d.row_events)
    FROM outbox.check_delivery_counts(COALESCE(audit_reconcile.from_batch, (0)::bigint), COALESCE(audit_reconcile.to_batch, '9223372036854775807'::bigint)) d(epoch, lane, seq, after_batch, after_key, to_batch, to_key, sessions, events, row_sessions, row_events)
   WHERE ((( SELECT range_agg(int8range(p.from_batch, p.to_batch, '[]'::text)) AS range_agg
            FROM outbox.output_partition p
           WHERE (NOT p.detaching)) @> int8range(LEAST((d.after_batch + ((d.after_key IS NULL))::integer), d.to_batch), d.to_batch, '[]'::text)) AND ((d.sessions IS DISTINCT FROM d.row_sessions) OR (d.events IS DISTINCT FROM d.row_events)))
 UNION ALL
  SELECT 'mirror'::text,
     'error'::text,
     m.epoch,
     m.lane,
     NULL::bigint,
     NULL::text,
     m.detail
    FROM outbox.check_mirror m
 UNION ALL
  SELECT 'parked_kept'::text,
     'critical'::text,
     p.epoch,
     p.lane,
     p.batch_id,
     p.session_key,
     p.detail
    FROM outbox.check_parked_rows(COALESCE(audit_reconcile.from_batch, (0)::bigint), COALESCE(audit_reconcile.to_batch, '9223372036854775807'::bigint)) p(batch_id, session_key, epoch, lane, requeued_batch, detail);
END;

--
-- Name: FUNCTION audit_reconcile(from_batch bigint, to_batch bigint); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.audit_reconcile(from_batch bigint, to_batch bigint) IS 'audit_reconciliation for the batches from the first to the second, both inclusive; NULL: no bound.';

--
-- Name: begin_erasure(text[]); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.begin_erasure(session_keys text[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    changed bigint;
BEGIN
    PERFORM outbox.require_read_committed();
    INSERT INTO outbox.erased_key AS k (key_hash, topic_id, partition, generation, through)
    SELECT n.key_hash, p.topic_id, p.partition, (SELECT max(m.generation) FROM outbox.generation m), p.end_offset - 1
    FROM (SELECT outbox.key_hash(s) AS key_hash FROM unnest(session_keys) s GROUP BY s OFFSET 0) n
    CROSS JOIN outbox.read_ends() p
    WHERE p.end_offset > 0
    ON CONFLICT ON CONSTRAINT erased_key_pkey DO UPDATE SET through = excluded.through WHERE excluded.through > k.through;
    GET DIAGNOSTICS changed = ROW_COUNT;
    -- Last: no batch is under way that has looked for erased keys before this transaction is over.
    PERFORM outbox.lock_writer();
    RETURN changed;
END $$;

--
-- Name: FUNCTION begin_erasure(session_keys text[]); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.begin_erasure(session_keys text[]) IS 'Keeps what was read of session keys out of every reissue; returns in how many partitions that is more than before.';

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
    PERFORM outbox.require_read_committed();
    PERFORM outbox.lock_writer();
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
    PERFORM outbox.wake('outbox_batch', '');
END $$;

--
-- Name: date_state(); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.date_state() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    new.state_changed_at := CASE WHEN new.state = old.state THEN old.state_changed_at ELSE clock_timestamp() END;
    RETURN new;
END $$;

--
-- Name: FUNCTION date_state(); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.date_state() IS 'Postgres alone says when a state changed: retention goes by it.';

--
-- Name: discard_parked(bigint, text[], bigint[], text[]); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.discard_parked(last_batch bigint, reasons text[], batch_ids bigint[], session_keys text[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    discarded bigint;
BEGIN
    PERFORM outbox.require_read_committed();
    UPDATE outbox.parked p
    SET state = 'discarded', state_changed_at = now()
    WHERE p.state = 'parked'
      AND p.batch_id <= last_batch
      AND (reasons IS NULL OR p.reason = ANY (reasons))
      AND (batch_ids IS NULL OR (p.batch_id, p.session_key) IN (SELECT * FROM unnest(batch_ids, session_keys)));
    GET DIAGNOSTICS discarded = ROW_COUNT;
    RETURN discarded;
END $$;

--
-- Name: drop_archived(text, uuid, bytea, bigint, bigint, bigint, bigint); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.drop_archived(partition_name text, archive_id uuid, manifest_sha256 bytea, row_count bigint, sessions bigint, outputs bigint, output_bytes bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    IF NOT EXISTS (
        SELECT FROM pg_locks l
        WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.mode = 'ShareLock' AND l.granted
          AND l.relation = to_regclass(format('outbox.%I', partition_name))
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    ) THEN
        RAISE EXCEPTION 'outbox.% was not held while it was archived', partition_name USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    INSERT INTO outbox.archived (partition_name, from_batch, to_batch, archive_id, manifest_sha256, row_count, sessions, outputs, output_bytes)
    SELECT drop_archived.partition_name, p.from_batch, p.to_batch, drop_archived.archive_id, drop_archived.manifest_sha256,
           drop_archived.row_count, drop_archived.sessions, drop_archived.outputs, drop_archived.output_bytes
    FROM outbox.output_partition p
    WHERE p.name = drop_archived.partition_name;
    PERFORM outbox.drop_partition(drop_archived.partition_name);
    -- By typed SQL, too: nothing here proves that the archive has the rows.
    INSERT INTO outbox.operation (os_user, host, command, arguments, result)
    VALUES ('?', '?', 'outbox.archived', '{}', jsonb_build_object('partition', drop_archived.partition_name, 'rows', drop_archived.row_count,
        'before', NULL, 'after', encode(drop_archived.manifest_sha256, 'hex')));
END $$;

--
-- Name: FUNCTION drop_archived(partition_name text, archive_id uuid, manifest_sha256 bytea, row_count bigint, sessions bigint, outputs bigint, output_bytes bigint); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.drop_archived(partition_name text, archive_id uuid, manifest_sha256 bytea, row_count bigint, sessions bigint, outputs bigint, output_bytes bigint) IS 'Part of retention: drops a partition that this transaction has held since before it was archived, and records its manifest.';

--
-- Name: drop_partition(text); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.drop_partition(partition_name text) RETURNS void
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
            -- In every state, the process that works on it may still send rows that it has read.
            SELECT FROM outbox.replay r
            WHERE (r.state IN ('running', 'paused') OR r.lease_until >= now())
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

--
-- Name: end_retention(text); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.end_retention(failure text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    UPDATE outbox.retention SET ended_at = clock_timestamp(), failed = failure;
END $$;

--
-- Name: ensure_partitions(bigint, bigint); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.ensure_partitions(first_batch bigint, last_batch bigint) RETURNS integer
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

--
-- Name: erase_letter_at(text, integer, bigint); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.erase_letter_at(topic text, partition integer, first_offset bigint, OUT erased bigint, OUT still_open bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    -- All letters without a key are read, so before the writer lock.
    letter_ids CONSTANT bigint[] := ARRAY(
        SELECT d.dead_letter_id FROM outbox.dead_letter d
        WHERE d.session_key IS NULL AND d.topic = erase_letter_at.topic AND d.partition = erase_letter_at.partition
          AND d.first_offset = erase_letter_at.first_offset);
BEGIN
    PERFORM outbox.require_read_committed();
    PERFORM outbox.lock_writer();
    SELECT outbox.erase_letters(coalesce(array_agg(d.dead_letter_id) FILTER (WHERE d.state <> 'open'), '{}')),
           count(*) FILTER (WHERE d.state = 'open')
    INTO erased, still_open
    FROM outbox.dead_letter d
    WHERE d.dead_letter_id = ANY (letter_ids);
END $$;

--
-- Name: FUNCTION erase_letter_at(topic text, partition integer, first_offset bigint, OUT erased bigint, OUT still_open bigint); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.erase_letter_at(topic text, partition integer, first_offset bigint, OUT erased bigint, OUT still_open bigint) IS 'Erases the dead letters without a session key at a place that are not open; returns how many it erased, and how many are open.';

--
-- Name: erase_letters(bigint[]); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.erase_letters(letter_ids bigint[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    erased bigint;
BEGIN
    PERFORM outbox.require_read_committed();
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

--
-- Name: FUNCTION erase_letters(letter_ids bigint[]); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.erase_letters(letter_ids bigint[]) IS 'Part of erase_letters_of_key() and erase_letter_at(): erases dead letters; returns how many. Under the writer lock.';

--
-- Name: erase_letters_of_key(text, integer); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.erase_letters_of_key(session_key text, most integer DEFAULT NULL::integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    RETURN outbox.erase_letters(ARRAY(
        SELECT d.dead_letter_id FROM outbox.dead_letter d WHERE d.session_key = erase_letters_of_key.session_key LIMIT most));
END $$;

--
-- Name: FUNCTION erase_letters_of_key(session_key text, most integer); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.erase_letters_of_key(session_key text, most integer) IS 'Erases dead letters of a session key, at most `most`; returns how many.';

--
-- Name: erase_parked(text, bigint[]); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.erase_parked(session_key text, batch_ids bigint[]) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    WITH deleted AS (
        DELETE FROM outbox.parked p WHERE p.session_key = erase_parked.session_key AND p.batch_id = ANY (batch_ids) RETURNING p.epoch, p.lane
    )
    UPDATE outbox.lane l SET pruned_parked = l.pruned_parked + n.rows
    FROM (SELECT d.epoch, d.lane, count(*) AS rows FROM deleted d GROUP BY d.epoch, d.lane) n
    WHERE l.epoch = n.epoch AND l.lane = n.lane
$$;

--
-- Name: FUNCTION erase_parked(session_key text, batch_ids bigint[]); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.erase_parked(session_key text, batch_ids bigint[]) IS 'Part of erase_rows() and erase_traces().';

--
-- Name: erase_positions(text, text, bigint, integer); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.erase_positions(session_key text, relation text, after_id bigint, most integer, OUT changed bigint, OUT kept text[], OUT last_id bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    key_bytes CONSTANT bytea := convert_to(session_key, 'UTF8');
    found record;
BEGIN
    PERFORM outbox.require_read_committed();
    changed := 0;
    kept := '{}';
    -- A session that was too large and has not ended is remembered by its key, in base64. Where nothing starts from a position again, that goes.
    FOR found IN
        (SELECT b.batch_id AS id, b.open_state,
                CASE WHEN b.batch_id = newest.batch_id THEN
                    CASE WHEN b.generation = (SELECT max(g.generation) FROM outbox.generation g) THEN 'the current position'
                         ELSE 'the last position of generation ' || b.generation END END AS needed
         FROM outbox.batch b
         CROSS JOIN LATERAL (SELECT max(n.batch_id) AS batch_id FROM outbox.batch n WHERE n.generation = b.generation AND n.kind = 'stream') newest
         WHERE relation = 'batch' AND b.batch_id > after_id AND b.open_state IS NOT NULL
         ORDER BY b.batch_id LIMIT most)
        UNION ALL
        (SELECT g.generation, g.open_state,
                CASE WHEN NOT EXISTS (SELECT FROM outbox.batch n WHERE n.generation = g.generation AND n.kind = 'stream')
                     THEN CASE WHEN g.generation = (SELECT max(n.generation) FROM outbox.generation n) THEN 'the current position'
                               ELSE 'the last position of generation ' || g.generation END END
         FROM outbox.generation g
         WHERE relation = 'generation' AND g.generation > after_id
         ORDER BY g.generation LIMIT most)
        UNION ALL
        (SELECT s.savepoint_id, s.open_state, CASE WHEN s.deleted_at IS NULL THEN 'savepoint ' || s.name END
         FROM outbox.savepoint s
         WHERE relation = 'savepoint' AND s.savepoint_id > after_id
         ORDER BY s.savepoint_id LIMIT most)
    LOOP
        last_id := found.id;
        CONTINUE WHEN outbox.without_key(found.open_state, key_bytes) = found.open_state;
        IF found.needed IS NOT NULL THEN
            kept := kept || found.needed;
            CONTINUE;
        END IF;
        changed := changed + 1;
        IF relation = 'batch' THEN
            UPDATE outbox.batch b SET open_state = outbox.without_key(b.open_state, key_bytes) WHERE b.batch_id = found.id;
        ELSIF relation = 'generation' THEN
            UPDATE outbox.generation g SET open_state = outbox.without_key(g.open_state, key_bytes) WHERE g.generation = found.id;
        ELSE
            UPDATE outbox.savepoint s SET open_state = outbox.without_key(s.open_state, key_bytes) WHERE s.savepoint_id = found.id;
        END IF;
    END LOOP;
END $$;

--
-- Name: FUNCTION erase_positions(session_key text, relation text, after_id bigint, most integer, OUT changed bigint, OUT kept text[], OUT last_id bigint); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.erase_positions(session_key text, relation text, after_id bigint, most integer, OUT changed bigint, OUT kept text[], OUT last_id bigint) IS 'Erases a session key in the next positions, at most `most`, of a relation: batch, generation or savepoint. Returns how many it changed, which still need the key, and the last one; NULL: there are no more.';

--
-- Name: erase_rows(text, bigint[]); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.erase_rows(session_key text, batch_ids bigint[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    first_batch CONSTANT bigint := (SELECT min(b) FROM unnest(batch_ids) b);
    last_batch CONSTANT bigint := (SELECT max(b) FROM unnest(batch_ids) b);
    ready bigint[];
    epochs integer[];
    lanes integer[];
    seqs bigint[];
    erased bigint;
BEGIN
    PERFORM outbox.require_read_committed();
    PERFORM outbox.hold_for_erasure();
    -- Deliveries with a cursor at one of the rows. All are read, so before the writer lock: no resume begins meanwhile, and the batches of other
    -- deliveries find them.
    SELECT array_agg(d.epoch), array_agg(d.lane), array_agg(d.seq) INTO epochs, lanes, seqs
    FROM outbox.delivery d
    WHERE (d.after_key = erase_rows.session_key AND d.after_batch = ANY (batch_ids)) OR (d.to_key = erase_rows.session_key AND d.to_batch = ANY (batch_ids));
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
    SELECT epochs || array_agg(d.epoch), lanes || array_agg(d.lane), seqs || array_agg(d.seq) INTO epochs, lanes, seqs
    FROM unnest(ready) AS b (batch_id)
    JOIN outbox.delivery d ON int8range(least(d.after_batch, d.to_batch), d.to_batch, '[]') @> b.batch_id
    WHERE erase_rows.session_key IN (d.after_key, d.to_key);
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
        WHERE (d.epoch, d.lane, d.seq) IN (SELECT * FROM unnest($5, $6, $7)) AND ((d.after_key = $1 AND d.after_batch = ANY ($2)) OR (d.to_key = $1 AND d.to_batch = ANY ($2)))
    $query$ USING session_key, ready, first_batch, last_batch, epochs, lanes, seqs;
    EXECUTE $query$
        UPDATE outbox.replay r
        SET cursor_key = coalesce((SELECT max(o.session_key) FROM outbox.session_output o
                                   WHERE o.batch_id = r.cursor_batch AND o.session_key < $1 AND o.batch_id >= $3 AND o.batch_id <= $4), '')
        WHERE r.cursor_key = $1 AND r.cursor_batch = ANY ($2)
    $query$ USING session_key, ready, first_batch, last_batch;
    RETURN erased;
END $_$;

--
-- Name: FUNCTION erase_rows(session_key text, batch_ids bigint[]); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.erase_rows(session_key text, batch_ids bigint[]) IS 'Erases the rows of a session key in these batches that are delivered and that no replay needs; returns how many. Under the writer lock.';

--
-- Name: erase_statistics(name); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.erase_statistics(partition_name name) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
END $_$;

--
-- Name: FUNCTION erase_statistics(partition_name name); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.erase_statistics(partition_name name) IS 'Renews the planner''s statistics of the session keys in a partition; does nothing if there is no such partition.';

--
-- Name: erase_traces(text, bigint, bigint, bigint); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.erase_traces(session_key text, after_batch bigint DEFAULT 0, after_generation bigint DEFAULT 0, after_savepoint bigint DEFAULT 0, OUT changed bigint, OUT kept text[]) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
        WHERE p.session_key = erase_traces.session_key
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
END $_$;

--
-- Name: FUNCTION erase_traces(session_key text, after_batch bigint, after_generation bigint, after_savepoint bigint, OUT changed bigint, OUT kept text[]); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.erase_traces(session_key text, after_batch bigint, after_generation bigint, after_savepoint bigint, OUT changed bigint, OUT kept text[]) IS 'Erases a session key where it stands beside rows and letters: cursors, replays and, under the writer lock, positions after these ledger rows, generations and savepoints. Returns the positions that still need it.';

--
-- Name: first_lane_epoch(integer); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.first_lane_epoch(lanes integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    INSERT INTO outbox.lane_epoch (epoch, from_batch, lanes)
    SELECT 1, 1, first_lane_epoch.lanes
    WHERE NOT EXISTS (SELECT FROM outbox.lane_epoch);
END $$;

--
-- Name: FUNCTION first_lane_epoch(lanes integer); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.first_lane_epoch(lanes integer) IS 'Sets the lane count of an outbox that has none yet. outbox.change_lanes() makes all later epochs.';

--
-- Name: hold_for_erasure(); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.hold_for_erasure() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    PERFORM pg_advisory_xact_lock(hashtextextended('outbox.retention', 0));
    PERFORM FROM outbox.replay r WHERE r.state IN ('running', 'paused') OR r.lease_until >= now() ORDER BY r.replay_id FOR NO KEY UPDATE;
END $$;

--
-- Name: FUNCTION hold_for_erasure(); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.hold_for_erasure() IS 'Keeps audits, resumes and replays from beginning until the transaction ends.';

--
-- Name: hold_partition(text); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.hold_partition(partition_name text, OUT row_count bigint, OUT sessions bigint, OUT outputs bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    IF NOT pg_try_advisory_xact_lock(hashtextextended('outbox.retention', 0)) THEN
        RAISE EXCEPTION 'outputs are needed as they are for now, or another retention runs' USING ERRCODE = 'object_in_use';
    END IF;
    IF NOT EXISTS (
        SELECT FROM outbox.output_partition p
        WHERE p.name = partition_name AND NOT p.detaching AND p.to_batch < (SELECT coalesce(max(b.batch_id), 0) FROM outbox.batch b)
    ) THEN
        RAISE EXCEPTION 'outbox.% is no partition of outbox.session_output, or batches may still come into it', partition_name
            USING ERRCODE = 'undefined_table';
    END IF;
    -- Nobody changes its rows until the transaction ends; everybody may read them.
    EXECUTE format('LOCK TABLE ONLY outbox.%I IN SHARE MODE', partition_name);
    EXECUTE format('SELECT count(*), coalesce(sum(cardinality(o.session_ends)), 0), coalesce(sum(cardinality(o.topics)), 0) FROM ONLY outbox.%I o',
                   partition_name) INTO row_count, sessions, outputs;
END $$;

--
-- Name: FUNCTION hold_partition(partition_name text, OUT row_count bigint, OUT sessions bigint, OUT outputs bigint); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.hold_partition(partition_name text, OUT row_count bigint, OUT sessions bigint, OUT outputs bigint) IS 'Part of retention: keeps the rows of a closed partition as they are until the transaction ends, and counts them.';

--
-- Name: integer_at(bytea, integer); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.integer_at(data bytea, place integer) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (((get_byte(data, place) + (get_byte(data, (place + 1)) << 8)) + (get_byte(data, (place + 2)) << 16)) + (get_byte(data, (place + 3)) << 24));

--
-- Name: FUNCTION integer_at(data bytea, place integer); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.integer_at(data bytea, place integer) IS 'Part of remembers().';

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
-- Name: key_hash(text); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.key_hash(session_key text) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN sha256((uuid_send((SELECT i.outbox_uuid FROM outbox.identity i)) || convert_to(session_key, 'UTF8'::name)));

--
-- Name: FUNCTION key_hash(session_key text); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.key_hash(session_key text) IS 'What stands for a session key that was erased: SHA-256 of the outbox uuid''s 16 bytes and the key.';

--
-- Name: letters_kept(double precision); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.letters_kept(keep_s double precision, OUT closed bigint, OUT open bigint, OUT bytes bigint, OUT old_closed bigint, OUT old_open bigint) RETURNS record
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

--
-- Name: letters_of_key(text); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.letters_of_key(session_key text, OUT letters bigint, OUT without_key bigint) RETURNS record
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT (SELECT count(*) FROM outbox.dead_letter d WHERE d.session_key = letters_of_key.session_key),
           (SELECT count(*) FROM outbox.dead_letter d WHERE d.session_key IS NULL)
$$;

--
-- Name: FUNCTION letters_of_key(session_key text, OUT letters bigint, OUT without_key bigint); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.letters_of_key(session_key text, OUT letters bigint, OUT without_key bigint) IS 'How many dead letters a session key has, and how many have no key at all.';

--
-- Name: lock_writer(); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.lock_writer() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    former CONSTANT bigint := hashtextextended('outbox.writer', 0);
BEGIN
    PERFORM outbox.require_read_committed();
    PERFORM FROM outbox.writer_lock FOR UPDATE;
    -- The release before has only the advisory lock. Both releases exclude each other by it; whoever may not write the outbox is not waited for.
    IF NOT pg_try_advisory_xact_lock(former) AND EXISTS (
        SELECT FROM pg_locks l
        JOIN pg_stat_activity a USING (pid)
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
          AND l.classid::bigint = (former >> 32) & 4294967295 AND l.objid::bigint = former & 4294967295
          AND (pg_has_role(a.usesysid, 'outbox_writer', 'MEMBER') OR pg_has_role(a.usesysid, 'outbox_publisher', 'MEMBER'))
    ) THEN
        PERFORM pg_advisory_xact_lock(former);
    END IF;
END $$;

--
-- Name: FUNCTION lock_writer(); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.lock_writer() IS 'Takes the writer lock until the transaction ends.';

--
-- Name: log_rebinding(); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.log_rebinding() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF (old.cluster_id IS NOT NULL AND old.cluster_id IS DISTINCT FROM new.cluster_id)
        OR (old.transactional_id_prefix IS NOT NULL AND old.transactional_id_prefix IS DISTINCT FROM new.transactional_id_prefix)
        OR old.system_identifier <> new.system_identifier OR old.timeline <> new.timeline
        OR NOT new.output_topic_ids @> old.output_topic_ids
    THEN
        INSERT INTO outbox.operation (os_user, host, command, arguments, result)
        VALUES ('?', '?', 'outbox.identity', '{}', jsonb_build_object('before', to_jsonb(old), 'after', to_jsonb(new)));
    END IF;
    RETURN NULL;
END $$;

--
-- Name: FUNCTION log_rebinding(); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.log_rebinding() IS 'A replacement of what the outbox is bound to leaves a row in the operator log, with or without a command.';

--
-- Name: open_at_upgrade(bigint, bigint); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.open_at_upgrade(first_batch bigint, last_batch bigint) RETURNS TABLE(topic_id text, partition integer, safe_offset bigint, batches bigint, first bigint, last bigint)
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

--
-- Name: open_input(); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.open_input(OUT topic_id text, OUT partition integer, OUT end_offset bigint, OUT open_from bigint) RETURNS SETOF record
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT t.topic_id, p.partition::integer, p.end_offset::bigint,
           -- Without a digest it is not known what is open.
           CASE WHEN (o.open ->> 'sessions')::bigint > 0 OR NOT o.open ? 'digest' THEN (o.open ->> 'safe')::bigint END
    FROM (SELECT n.* FROM outbox.generation n ORDER BY n.generation DESC LIMIT 1) g
    LEFT JOIN LATERAL (
        SELECT n.end_offsets, n.open_state FROM outbox.batch n
        WHERE n.generation = g.generation AND n.kind = 'stream' ORDER BY n.batch_id DESC LIMIT 1
    ) b ON true
    CROSS JOIN LATERAL jsonb_each(coalesce(b.end_offsets, g.start_offsets)) AS t (topic_id, partitions)
    CROSS JOIN LATERAL jsonb_each_text(t.partitions) AS p (partition, end_offset)
    CROSS JOIN LATERAL (SELECT coalesce(b.open_state, g.open_state) -> t.topic_id -> p.partition AS open) o
$$;

--
-- Name: FUNCTION open_input(OUT topic_id text, OUT partition integer, OUT end_offset bigint, OUT open_from bigint); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.open_input(OUT topic_id text, OUT partition integer, OUT end_offset bigint, OUT open_from bigint) IS 'How far the job has read in each input partition, exclusive, and where the oldest session begins that may be open; NULL: none is.';

--
-- Name: partitions_of_erased(text[]); Type: FUNCTION; Schema: outbox; Owner: -
--

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

--
-- Name: FUNCTION partitions_of_erased(session_keys text[]); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.partitions_of_erased(session_keys text[]) IS 'The partitions of session_output that had rows of these session keys, which were erased.';

--
-- Name: prune_batches(double precision, bigint, integer); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.prune_batches(keep_s double precision, after_batch bigint, max_rows integer, OUT pruned bigint, OUT last_batch bigint, OUT more boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    floor_batch CONSTANT bigint := outbox.retention_floor();
BEGIN
    PERFORM outbox.require_read_committed();
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

--
-- Name: prune_deliveries(integer, integer, double precision, integer); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.prune_deliveries(of_epoch integer, of_lane integer, keep_s double precision, max_rows integer, OUT pruned bigint, OUT more boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
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

--
-- Name: prune_epochs(double precision); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.prune_epochs(keep_s double precision, OUT pruned integer[]) RETURNS integer[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    floor_batch CONSTANT bigint := outbox.retention_floor();
BEGIN
    PERFORM outbox.require_read_committed();
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

--
-- Name: prune_erased(double precision, integer); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.prune_erased(keep_s double precision, max_rows integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    floor_batch CONSTANT bigint := outbox.retention_floor();
    pruned bigint;
BEGIN
    PERFORM outbox.require_read_committed();
    DELETE FROM outbox.erased d
    WHERE d.erased_id IN (
        SELECT x.erased_id
        FROM outbox.erased x
        WHERE x.batch_id < floor_batch AND x.erased_at < now() - make_interval(secs => keep_s)
        ORDER BY x.erased_id
        LIMIT max_rows);
    GET DIAGNOSTICS pruned = ROW_COUNT;
    RETURN pruned;
END $$;

--
-- Name: FUNCTION prune_erased(keep_s double precision, max_rows integer); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.prune_erased(keep_s double precision, max_rows integer) IS 'Part of retention: deletes what stands for erased rows that nothing counts any more; returns how many.';

--
-- Name: prune_operations(double precision, integer); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.prune_operations(keep_s double precision, max_rows integer, OUT pruned bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    DELETE FROM outbox.operation d
    WHERE d.operation_id IN (
        SELECT o.operation_id FROM outbox.operation o
        WHERE o.at < now() - make_interval(secs => greatest(keep_s, 2592000))
        ORDER BY o.operation_id
        LIMIT max_rows);
    GET DIAGNOSTICS pruned = ROW_COUNT;
END $$;

--
-- Name: prune_parked(double precision, integer); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.prune_parked(keep_s double precision, max_rows integer, OUT pruned bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    floor_batch CONSTANT bigint := outbox.retention_floor();
BEGIN
    PERFORM outbox.require_read_committed();
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

--
-- Name: prune_processes(double precision, integer); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.prune_processes(keep_s double precision, max_rows integer, OUT pruned bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    DELETE FROM outbox.publisher_process d
    WHERE d.process_id IN (
        SELECT p.process_id FROM outbox.publisher_process p
        WHERE coalesce(p.ended_at, p.alive_until) < now() - make_interval(secs => greatest(keep_s, 0))
        LIMIT max_rows);
    GET DIAGNOSTICS pruned = ROW_COUNT;
END $$;

--
-- Name: prune_replay_keys(double precision, integer); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.prune_replay_keys(keep_s double precision, max_rows integer, OUT pruned bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    DELETE FROM outbox.replay_key d
    WHERE (d.replay_id, d.session_key) IN (
        SELECT k.replay_id, k.session_key
        FROM outbox.replay r
        JOIN outbox.replay_key k USING (replay_id)
        WHERE r.state IN ('done', 'cancelled') AND r.state_changed_at < now() - make_interval(secs => keep_s)
        LIMIT max_rows);
    GET DIAGNOSTICS pruned = ROW_COUNT;
END $$;

--
-- Name: prune_replays(double precision, integer); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.prune_replays(keep_s double precision, max_rows integer, OUT pruned bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    DELETE FROM outbox.replay d
    WHERE d.replay_id IN (
        SELECT r.replay_id FROM outbox.replay r
        WHERE r.state IN ('done', 'cancelled') AND r.state_changed_at < now() - make_interval(secs => keep_s)
          AND NOT EXISTS (SELECT FROM outbox.replay_key k WHERE k.replay_id = r.replay_id)
        LIMIT max_rows);
    GET DIAGNOSTICS pruned = ROW_COUNT;
END $$;

--
-- Name: prune_resumes(); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.prune_resumes(OUT pruned bigint) RETURNS bigint
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
    GET DIAGNOSTICS pruned = ROW_COUNT;
END $$;

--
-- Name: read_ends(); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.read_ends(OUT topic_id text, OUT partition integer, OUT end_offset bigint) RETURNS SETOF record
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    BEGIN ATOMIC
 SELECT t.topic_id,
     (e.partition)::integer AS partition,
     max(LEAST((e.end_offset)::bigint, c.cut)) AS max
    FROM ((((outbox.generation g
      LEFT JOIN LATERAL ( SELECT b_1.end_offsets
            FROM outbox.batch b_1
           WHERE ((b_1.generation = g.generation) AND (b_1.kind = 'stream'::text))
           ORDER BY b_1.batch_id DESC
          LIMIT 1) b ON (true))
      CROSS JOIN LATERAL jsonb_each(COALESCE(b.end_offsets, g.start_offsets)) t(topic_id, partitions))
      CROSS JOIN LATERAL jsonb_each_text(t.partitions) e(partition, end_offset))
      CROSS JOIN LATERAL ( SELECT min(((l.cut_offsets #>> ARRAY[t.topic_id, e.partition]))::bigint) AS cut
            FROM outbox.generation l
           WHERE ((l.generation > g.generation) AND (l.cut_offsets IS NOT NULL))) c)
   GROUP BY t.topic_id, e.partition;
END;

--
-- Name: FUNCTION read_ends(OUT topic_id text, OUT partition integer, OUT end_offset bigint); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.read_ends(OUT topic_id text, OUT partition integer, OUT end_offset bigint) IS 'How far the job has ever read each input partition, exclusive.';

--
-- Name: record_hash(text, integer, bigint); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.record_hash(topic_id text, partition integer, record_offset bigint) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN sha256(((uuid_send((SELECT i.outbox_uuid FROM outbox.identity i)) || '\x00'::bytea) || convert_to(format('%s/%s/%s'::text, topic_id, partition, record_offset), 'UTF8'::name)));

--
-- Name: FUNCTION record_hash(topic_id text, partition integer, record_offset bigint); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.record_hash(topic_id text, partition integer, record_offset bigint) IS 'What stands for a record without a session key that was erased: as key_hash, of a zero byte and the record''s position.';

--
-- Name: remember_erased(); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.remember_erased() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    INSERT INTO outbox.erased_key AS k (key_hash, topic_id, partition, generation, through)
    SELECT coalesce(a.key_hash, outbox.record_hash(e.topic_id, e.partition, e.end_offset)), e.topic_id, e.partition, a.generation,
           max(least(e.end_offset, p.end_offset - 1))
    FROM added a
    CROSS JOIN LATERAL unnest(a.topic_ids, a.partitions, a.ends) AS e (topic_id, partition, end_offset)
    -- A caller of rewrite_archived could name offsets to come.
    JOIN outbox.read_ends() p ON p.topic_id = e.topic_id AND p.partition = e.partition AND p.end_offset > 0
    GROUP BY 1, e.topic_id, e.partition, a.generation
    ON CONFLICT ON CONSTRAINT erased_key_pkey DO UPDATE SET through = excluded.through WHERE excluded.through > k.through;
    RETURN NULL;
END $$;

--
-- Name: FUNCTION remember_erased(); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.remember_erased() IS 'What is erased stays out of every reissue, also once outbox.erased is pruned.';

--
-- Name: remembers(bytea, bytea); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.remembers(remembered bytea, key_bytes bytea) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    sessions integer;
    place integer;
    texts integer;
    bounds integer;
BEGIN
    IF position(key_bytes IN remembered) = 0 THEN
        RETURN false;
    END IF;
    sessions := outbox.integer_at(remembered, 0);
    -- Eight columns of 8 bytes a session, one of 1 byte, and which keys are there: all.
    bounds := 8 + 64 * sessions + 2 * ((sessions + 7) / 8 * 8);
    place := bounds + 8 * (sessions + 1);
    FOR n IN 0 .. sessions - 1 LOOP
        IF substring(remembered FROM place + outbox.integer_at(remembered, bounds + 8 * n) + 1
                     FOR outbox.integer_at(remembered, bounds + 8 * n + 8) - outbox.integer_at(remembered, bounds + 8 * n)) = key_bytes THEN
            RETURN true;
        END IF;
    END LOOP;
    place := place + (outbox.integer_at(remembered, place - 8) + 7) / 8 * 8;
    -- Two columns of hashes.
    FOR n IN 1 .. 2 LOOP
        texts := (SELECT count(*) FROM generate_series(place, place + sessions - 1) i WHERE get_byte(remembered, i) <> 0);
        place := place + (sessions + 7) / 8 * 8 + 8 * (texts + 1);
        place := place + (outbox.integer_at(remembered, place - 8) + 7) / 8 * 8;
    END LOOP;
    -- An offset for each session whose start came again.
    place := place + 8 * (SELECT count(*) FROM generate_series(8 + 40 * sessions, 8 + 41 * sessions - 1) i WHERE get_byte(remembered, i) >= 2);
    RETURN place < length(remembered)
        AND substring(remembered FROM place + 41 FOR outbox.integer_at(remembered, place + 32)) = key_bytes;
EXCEPTION WHEN data_exception THEN
    -- It has the key's bytes, and nobody can read them: a person has to look.
    RETURN true;
END $$;

--
-- Name: FUNCTION remembers(remembered bytea, key_bytes bytea); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.remembers(remembered bytea, key_bytes bytea) IS 'Whether a position remembers a session key: of a session that was too large and has not ended, or of the partition''s last record.';

--
-- Name: remove_closed_letters(double precision, bigint, bigint, integer); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.remove_closed_letters(keep_s double precision, after_id bigint, excess bigint, max_rows integer, OUT removed bigint, OUT freed bigint, OUT last_id bigint, OUT more boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    SELECT r.removed, r.freed, r.last_id, r.more INTO removed, freed, last_id, more
    FROM outbox.remove_letters(false, keep_s, after_id, excess, max_rows) r;
END $$;

--
-- Name: remove_letters(boolean, double precision, bigint, bigint, integer); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.remove_letters(is_open boolean, keep_s double precision, after_id bigint, excess bigint, max_rows integer, OUT removed bigint, OUT freed bigint, OUT last_id bigint, OUT more boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
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

--
-- Name: remove_open_letters(double precision, bigint, bigint, integer); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.remove_open_letters(keep_s double precision, after_id bigint, excess bigint, max_rows integer, OUT removed bigint, OUT freed bigint, OUT last_id bigint, OUT more boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    SELECT r.removed, r.freed, r.last_id, r.more INTO removed, freed, last_id, more
    FROM outbox.remove_letters(true, keep_s, after_id, excess, max_rows) r;
END $$;

--
-- Name: requeue(text[], bigint[], integer[], integer, uuid); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.requeue(session_keys text[], batch_ids bigint[], lanes integer[], lane_count integer, run_id uuid) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    new_batch bigint;
    marked bigint;
    copied bigint;
BEGIN
    PERFORM outbox.require_read_committed();
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
    PERFORM outbox.wake('outbox_batch', '');
    RETURN new_batch;
END $_$;

--
-- Name: require_read_committed(); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.require_read_committed() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    -- Any other transaction of the caller may have looked before somebody began to need the rows.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a % transaction does not see what others need by now', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
END $$;

--
-- Name: FUNCTION require_read_committed(); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.require_read_committed() IS 'The first statement of every function that changes something with the owner''s rights.';

--
-- Name: retention_floor(); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.retention_floor() RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
SELECT least(
    (SELECT min(p.from_batch) FROM outbox.output_partition p),
    (SELECT min(CASE WHEN p.stopped_why = 'resuming' THEN p.from_batch - 1 ELSE p.through_batch END)
     FROM outbox.lane_position p
     WHERE p.stopped_why = 'resuming' OR NOT p.ended),
    (SELECT min(greatest(r.from_batch, r.cursor_batch)) FROM outbox.replay r WHERE r.state IN ('running', 'paused') AND NOT r.from_archive),
    (SELECT min(p.batch_id) FROM outbox.parked p WHERE p.state = 'parked'),
    (SELECT max(b.batch_id) FROM outbox.batch b))
$$;

--
-- Name: rewrite_archived(text, bytea, bytea, jsonb); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.rewrite_archived(partition_name text, old_manifest bytea, new_manifest bytea, erased jsonb) RETURNS bigint[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    -- The last input position of each generation, of which retention keeps the row.
    positions CONSTANT jsonb[] := ARRAY(
        SELECT n.end_offsets
        FROM outbox.generation g
        CROSS JOIN LATERAL (
            SELECT b.end_offsets FROM outbox.batch b
            WHERE b.generation = g.generation AND b.kind = 'stream' ORDER BY b.batch_id DESC LIMIT 1) n);
    held outbox.archived;
    replays bigint[];
BEGIN
    PERFORM outbox.require_read_committed();
    -- Before the writer lock: a position only advances, and the batches of a partition stay the same.
    IF EXISTS (
        SELECT FROM outbox.archived a
        CROSS JOIN jsonb_to_recordset(erased) AS e (batch_id bigint, topic_ids text[], partitions integer[], ends bigint[])
        LEFT JOIN LATERAL unnest(e.topic_ids, e.partitions, e.ends) AS s (topic_id, partition, end_offset) ON true
        WHERE a.partition_name = rewrite_archived.partition_name
          AND ((e.batch_id BETWEEN a.from_batch AND a.to_batch) IS NOT TRUE
               OR (SELECT bool_and(p.position #> ARRAY[s.topic_id, s.partition::text] <= to_jsonb(s.end_offset)) FROM unnest(positions) AS p (position)))
    ) THEN
        RAISE EXCEPTION 'the archive of outbox.% has no such row: another batch, or a session that ends where the input is not read', partition_name
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
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
    -- Retention keeps the newest stream row of each generation, so the next stream row after a pruned one has its generation. After a retried or
    -- requeued batch it may be of a later one: then fewer cuts apply, and a reissue leaves out more.
    SELECT outbox.key_hash(e.session_key), e.batch_id,
           coalesce(b.generation,
                    (SELECT n.generation FROM outbox.batch n WHERE n.kind = 'stream' AND n.batch_id > e.batch_id ORDER BY n.batch_id LIMIT 1),
                    (SELECT max(g.generation) FROM outbox.generation g)),
           (SELECT max(n.epoch) FROM outbox.lane_epoch n WHERE n.from_batch <= e.batch_id),
           e.lane, e.revision, e.topic_ids, e.partitions, e.ends, e.outputs, e.output_bytes, e.topics, '{}', e.was_parked
    FROM jsonb_to_recordset(erased) AS e (session_key text, batch_id bigint, lane integer, revision integer, topic_ids text[], partitions integer[],
        ends bigint[], outputs integer[], output_bytes bigint, topics text[], was_parked boolean)
    LEFT JOIN outbox.batch b ON b.batch_id = e.batch_id;
    UPDATE outbox.archived a
    SET manifest_sha256 = new_manifest, rewritten_at = clock_timestamp(),
        row_count = a.row_count - e.row_count, sessions = a.sessions - e.sessions, outputs = a.outputs - e.outputs,
        output_bytes = a.output_bytes - e.output_bytes, erased_rows = a.erased_rows + e.row_count
    FROM (SELECT count(*) AS row_count, coalesce(sum(jsonb_array_length(j -> 'ends')), 0) AS sessions,
                 coalesce(sum((SELECT sum(n::bigint) FROM jsonb_array_elements_text(j -> 'outputs') n)), 0) AS outputs,
                 coalesce(sum((j ->> 'output_bytes')::bigint), 0) AS output_bytes
          FROM jsonb_array_elements(erased) j) e
    WHERE a.partition_name = rewrite_archived.partition_name;
    -- By typed SQL, too. The former digest leads back to the former files.
    INSERT INTO outbox.operation (os_user, host, command, arguments, result)
    VALUES ('?', '?', 'outbox.archived', '{}', jsonb_build_object('partition', partition_name, 'rows', jsonb_array_length(erased),
        'before', encode(old_manifest, 'hex'), 'after', encode(new_manifest, 'hex')));
    RETURN '{}';
END $$;

--
-- Name: FUNCTION rewrite_archived(partition_name text, old_manifest bytea, new_manifest bytea, erased jsonb); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.rewrite_archived(partition_name text, old_manifest bytea, new_manifest bytea, erased jsonb) IS 'Erases rows of the archive: its files without them have another manifest. Returns the replays that need the old files; then nothing has changed. Under the writer lock.';

--
-- Name: rows_of_key(text, bigint, bigint); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.rows_of_key(session_key text, from_batch bigint, to_batch bigint) RETURNS TABLE(batch_id bigint, sessions integer, topics text[], keys bytea[], partitions integer[], is_delivered boolean, replays bigint[])
    LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
BEGIN
    -- EXECUTE plans it with the bounds as constants, so that only the partitions of these batches are locked.
    RETURN QUERY EXECUTE $query$
        SELECT o.batch_id, cardinality(o.session_ends), o.topics, o.keys, o.partitions, n.is_delivered, n.replays
        FROM outbox.session_output o
        CROSS JOIN LATERAL (
            -- The row, and those of which it is the requeued copy: audits look for the copy as long as the original is there.
            WITH RECURSIVE needed (batch_id, epoch, lane) AS (
                SELECT o.batch_id, (SELECT max(e.epoch) FROM outbox.lane_epoch e WHERE e.from_batch <= o.batch_id), o.lane
                UNION
                SELECT p.batch_id, p.epoch, p.lane
                FROM needed c
                JOIN outbox.parked p ON p.session_key = $1 AND p.requeued_batch = c.batch_id
            )
            SELECT -- The lane is past the whole batch, so that no cursor of a lane names the row. A resume that did not end may have set it back.
                   (SELECT bool_and(p.through_batch >= c.batch_id AND p.stopped_why IS DISTINCT FROM 'resuming') AND count(p) = count(*)
                    FROM needed c
                    LEFT JOIN outbox.lane_position p ON p.lane = c.lane AND p.epoch = c.epoch) AS is_delivered,
                   -- A process that works on a replay may hold the row; one that stands at it continues after it.
                   ARRAY(SELECT r.replay_id
                         FROM outbox.replay r
                         WHERE (NOT r.only_keys OR EXISTS (SELECT FROM outbox.replay_key k WHERE k.replay_id = r.replay_id AND k.session_key = $1))
                           AND EXISTS (
                               SELECT FROM needed c
                               WHERE r.from_batch <= c.batch_id AND r.to_batch >= c.batch_id
                                 AND CASE WHEN r.cursor_batch = c.batch_id AND r.cursor_key = $1 THEN r.state IN ('running', 'paused')
                                          ELSE (r.cursor_batch < c.batch_id OR (r.cursor_batch = c.batch_id AND r.cursor_key < $1))
                                               AND r.lease_until >= now() END)
                         ORDER BY r.replay_id) AS replays
        ) n
        WHERE o.session_key = $1 AND o.batch_id >= $2 AND o.batch_id <= $3
        ORDER BY o.batch_id
    $query$ USING session_key, from_batch, to_batch;
END $_$;

--
-- Name: FUNCTION rows_of_key(session_key text, from_batch bigint, to_batch bigint); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.rows_of_key(session_key text, from_batch bigint, to_batch bigint) IS 'The rows of a session key in a range of batches: whether its lane has delivered each, and the replays that need it as it is.';

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
-- Name: wake(text, text); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.wake(channel text, payload text) RETURNS void
    LANGUAGE sql
    BEGIN ATOMIC
 SELECT pg_notify(channel, payload) AS pg_notify
   WHERE (pg_notification_queue_usage() < (0.5)::double precision);
END;

--
-- Name: FUNCTION wake(channel text, payload text); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.wake(channel text, payload text) IS 'Tells the publishers at the commit, unless the server''s queue of notifications is half full: they poll, too.';

--
-- Name: without_key(jsonb, bytea); Type: FUNCTION; Schema: outbox; Owner: -
--

CREATE FUNCTION outbox.without_key(open_state jsonb, key_bytes bytea) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    place record;
BEGIN
    FOR place IN
        SELECT t.topic_id, p.partition
        FROM jsonb_each(open_state) AS t (topic_id, partitions)
        CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, open)
        WHERE outbox.remembers(decode(p.open ->> 'tombstones', 'base64'), key_bytes)
    LOOP
        open_state := open_state #- ARRAY[place.topic_id, place.partition, 'tombstones'];
    END LOOP;
    RETURN open_state;
END $$;

--
-- Name: FUNCTION without_key(open_state jsonb, key_bytes bytea); Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON FUNCTION outbox.without_key(open_state jsonb, key_bytes bytea) IS 'Part of erase_positions(): an open state without the remembered sessions of each partition that remembers the key.';

--
-- Name: alembic_version; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.alembic_version (
    version_num character varying(32) NOT NULL
);

--
-- Name: archived; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.archived (
    partition_name text NOT NULL,
    from_batch bigint NOT NULL,
    to_batch bigint NOT NULL,
    archive_id uuid NOT NULL,
    manifest_sha256 bytea NOT NULL,
    row_count bigint NOT NULL,
    sessions bigint NOT NULL,
    outputs bigint NOT NULL,
    output_bytes bigint NOT NULL,
    erased_rows bigint DEFAULT 0 NOT NULL,
    archived_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    rewritten_at timestamp with time zone,
    CONSTRAINT archived_manifest CHECK ((octet_length(manifest_sha256) = 32)),
    CONSTRAINT archived_natural CHECK ((LEAST(row_count, sessions, outputs, output_bytes, erased_rows) >= 0)),
    CONSTRAINT archived_range CHECK (((from_batch >= 0) AND (to_batch >= from_batch)))
);

--
-- Name: TABLE archived; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON TABLE outbox.archived IS 'Partitions of session_output that retention has dropped after it archived them. What reads the archive trusts this row, and nothing else.';

--
-- Name: COLUMN archived.partition_name; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.archived.partition_name IS 'the table that was dropped';

--
-- Name: COLUMN archived.from_batch; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.archived.from_batch IS 'its first batch';

--
-- Name: COLUMN archived.to_batch; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.archived.to_batch IS 'its last batch';

--
-- Name: COLUMN archived.archive_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.archived.archive_id IS 'stands for the commit ids of its batches in the progress of a replay from the archive';

--
-- Name: COLUMN archived.manifest_sha256; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.archived.manifest_sha256 IS 'SHA-256 of the manifest, which has the digests of the files';

--
-- Name: COLUMN archived.row_count; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.archived.row_count IS 'rows in the files';

--
-- Name: COLUMN archived.sessions; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.archived.sessions IS 'their sessions';

--
-- Name: COLUMN archived.outputs; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.archived.outputs IS 'their outputs';

--
-- Name: COLUMN archived.output_bytes; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.archived.output_bytes IS 'bytes of all values';

--
-- Name: COLUMN archived.erased_rows; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.archived.erased_rows IS 'rows that `publisher erase` has taken out since';

--
-- Name: COLUMN archived.archived_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.archived.archived_at IS 'when it was archived and dropped';

--
-- Name: COLUMN archived.rewritten_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.archived.rewritten_at IS 'when `publisher erase` rewrote it last';

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
ALTER TABLE ONLY outbox.dead_letter ALTER COLUMN session_key SET STATISTICS 0;
ALTER TABLE ONLY outbox.dead_letter ALTER COLUMN detail SET STATISTICS 0;
ALTER TABLE ONLY outbox.dead_letter ALTER COLUMN event_values SET STATISTICS 0;
ALTER TABLE ONLY outbox.dead_letter ALTER COLUMN event_types SET STATISTICS 0;

--
-- Name: audit_dead_letter; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_dead_letter AS
 SELECT dead_letter_id,
    created_at,
    reason,
    state,
    session_key,
    detail,
    topic,
    partition,
    first_offset,
    last_offset,
    closing_offset,
    event_count AS events,
    cardinality(event_values) AS kept_events,
    outbox.try_json(event_values[1]) AS first_event,
    batch_id,
    generation,
    revision,
    resolved_batch,
        CASE
            WHEN (state <> 'open'::text) THEN state_changed_at
            ELSE NULL::timestamp with time zone
        END AS ended_at,
    topic_id
   FROM outbox.dead_letter d;

--
-- Name: VIEW audit_dead_letter; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_dead_letter IS 'Input that made no output: one row per dead letter. Ask by session_key, or by state = ''open''.';

--
-- Name: COLUMN audit_dead_letter.dead_letter_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.dead_letter_id IS 'number of the letter, for `spark-job dead-letters`';

--
-- Name: COLUMN audit_dead_letter.created_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.created_at IS 'when it was written';

--
-- Name: COLUMN audit_dead_letter.reason; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.reason IS 'malformed, no_start, restarted, timed_out, too_large or transform_failed';

--
-- Name: COLUMN audit_dead_letter.state; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.state IS 'open, resolved or discarded';

--
-- Name: COLUMN audit_dead_letter.session_key; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.session_key IS 'key of its events, NULL where none could be read';

--
-- Name: COLUMN audit_dead_letter.detail; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.detail IS 'in words; of a failed transform the traceback';

--
-- Name: COLUMN audit_dead_letter.topic; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.topic IS 'input topic';

--
-- Name: COLUMN audit_dead_letter.partition; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.partition IS 'input partition';

--
-- Name: COLUMN audit_dead_letter.first_offset; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.first_offset IS 'offset of its first event';

--
-- Name: COLUMN audit_dead_letter.last_offset; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.last_offset IS 'offset of its last event';

--
-- Name: COLUMN audit_dead_letter.closing_offset; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.closing_offset IS 'offset of the event that decided it';

--
-- Name: COLUMN audit_dead_letter.events; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.events IS 'events that it consists of';

--
-- Name: COLUMN audit_dead_letter.kept_events; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.kept_events IS 'events that are kept';

--
-- Name: COLUMN audit_dead_letter.first_event; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.first_event IS 'the first event kept as JSON, NULL where it is none';

--
-- Name: COLUMN audit_dead_letter.batch_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.batch_id IS 'number of the ledger row (outbox.batch) that it was committed with';

--
-- Name: COLUMN audit_dead_letter.generation; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.generation IS 'period with one assembly description and one revision (outbox.generation)';

--
-- Name: COLUMN audit_dead_letter.revision; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.revision IS '0; more after a restore with policy reissue, as the header outbox-revision says';

--
-- Name: COLUMN audit_dead_letter.resolved_batch; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.resolved_batch IS 'batch whose outputs cover its events';

--
-- Name: COLUMN audit_dead_letter.ended_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.ended_at IS 'when it was resolved or discarded, NULL: open';

--
-- Name: COLUMN audit_dead_letter.topic_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter.topic_id IS 'Kafka''s id of the input topic';

--
-- Name: audit_dead_letter_reason; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_dead_letter_reason AS
 SELECT reason,
    state,
    count(*) AS letters,
    sum(event_count) AS events,
    min(created_at) AS oldest,
    max(created_at) AS newest
   FROM outbox.dead_letter d
  GROUP BY reason, state;

--
-- Name: VIEW audit_dead_letter_reason; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_dead_letter_reason IS 'Dead letters by reason and state, with the age of the oldest.';

--
-- Name: COLUMN audit_dead_letter_reason.reason; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter_reason.reason IS 'why no output was made';

--
-- Name: COLUMN audit_dead_letter_reason.state; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter_reason.state IS 'open, resolved or discarded';

--
-- Name: COLUMN audit_dead_letter_reason.letters; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter_reason.letters IS 'dead letters';

--
-- Name: COLUMN audit_dead_letter_reason.events; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter_reason.events IS 'input events in them';

--
-- Name: COLUMN audit_dead_letter_reason.oldest; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter_reason.oldest IS 'when the oldest of them was written';

--
-- Name: COLUMN audit_dead_letter_reason.newest; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_dead_letter_reason.newest IS 'when the newest of them was written';

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
    from_archive boolean DEFAULT false NOT NULL,
    CONSTRAINT replay_batches_ordered CHECK (((from_batch > 0) AND (from_batch <= (to_batch + 1)))),
    CONSTRAINT replay_lease_whole CHECK ((num_nulls(lease_holder, lease_until, lease_backend_pid) = ANY (ARRAY[0, 3]))),
    CONSTRAINT replay_natural CHECK ((LEAST(rows_total, events_total, lease_token, seq, cursor_batch, rows_sent, events_sent, rows_skipped) >= 0)),
    CONSTRAINT replay_rate_positive CHECK ((events_per_second > 0)),
    CONSTRAINT replay_requested_object CHECK ((jsonb_typeof(requested) = 'object'::text)),
    CONSTRAINT replay_state_known CHECK ((state = ANY (ARRAY['running'::text, 'paused'::text, 'cancelled'::text, 'done'::text])))
);
ALTER TABLE ONLY outbox.replay ALTER COLUMN reason SET STATISTICS 0;
ALTER TABLE ONLY outbox.replay ALTER COLUMN cursor_key SET STATISTICS 0;

--
-- Name: COLUMN replay.from_archive; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.replay.from_archive IS 'reads the archive, not session_output';

--
-- Name: replay_key; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.replay_key (
    replay_id bigint NOT NULL,
    session_key text NOT NULL COLLATE pg_catalog."C"
);
ALTER TABLE ONLY outbox.replay_key ALTER COLUMN session_key SET STATISTICS 0;

--
-- Name: audit_replayed; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_replayed AS
 SELECT o.session_key,
    o.batch_id,
    r.replay_id,
    r.replay_uuid,
    r.created_at AS began_at,
        CASE
            WHEN (r.state = ANY (ARRAY['done'::text, 'cancelled'::text])) THEN r.state_changed_at
            ELSE NULL::timestamp with time zone
        END AS ended_at,
    ( SELECT count(*) AS count
           FROM unnest(o.topics) t(topic)
          WHERE ((r.topics IS NULL) OR (t.topic = ANY (r.topics)))) AS output_events,
    r.target_topic,
    r.target_servers,
    (r.rows_skipped = 0) AS certain
   FROM (outbox.replay r
     JOIN outbox.session_output o ON (((o.batch_id >= r.from_batch) AND (o.batch_id <= r.to_batch) AND ((r.state = 'done'::text) OR (o.batch_id < r.cursor_batch) OR ((o.batch_id = r.cursor_batch) AND ((r.cursor_key IS NULL) OR (o.session_key <= r.cursor_key)))))))
  WHERE ((r.rows_sent > 0) AND
        CASE
            WHEN (r.topics IS NULL) THEN (cardinality(o.topics) > 0)
            ELSE (o.topics && r.topics)
        END AND ((NOT r.only_keys) OR (EXISTS ( SELECT
           FROM outbox.replay_key k
          WHERE ((k.replay_id = r.replay_id) AND (k.session_key = o.session_key))))) AND (NOT (EXISTS ( SELECT
           FROM outbox.parked p
          WHERE ((p.session_key = o.session_key) AND (p.batch_id = o.batch_id))))));

--
-- Name: VIEW audit_replayed; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_replayed IS 'Rows that a replay has sent: one row per replay, session key and batch. A replay keeps no record of each transaction, so when is known only as between began_at and ended_at. Ask by session_key or replay_id.';

--
-- Name: COLUMN audit_replayed.session_key; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replayed.session_key IS 'key of the session''s events';

--
-- Name: COLUMN audit_replayed.batch_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replayed.batch_id IS 'number of the ledger row (outbox.batch) that it was committed with';

--
-- Name: COLUMN audit_replayed.replay_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replayed.replay_id IS 'number of the replay';

--
-- Name: COLUMN audit_replayed.replay_uuid; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replayed.replay_uuid IS 'header outbox-replay of what it sent';

--
-- Name: COLUMN audit_replayed.began_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replayed.began_at IS 'when the replay was made';

--
-- Name: COLUMN audit_replayed.ended_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replayed.ended_at IS 'when the replay was done or cancelled, NULL: not yet';

--
-- Name: COLUMN audit_replayed.output_events; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replayed.output_events IS 'output events of the row that the replay''s topics let through';

--
-- Name: COLUMN audit_replayed.target_topic; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replayed.target_topic IS 'topic that it sends to, NULL: each event''s own';

--
-- Name: COLUMN audit_replayed.target_servers; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replayed.target_servers IS 'bootstrap servers of the target';

--
-- Name: COLUMN audit_replayed.certain; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replayed.certain IS 'false: the replay left rows out, maybe this one';

--
-- Name: audit_history; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_history AS
 SELECT o.session_key,
    b.created_at AS at,
        CASE
            WHEN (b.kind = 'retry'::text) THEN 'retried'::text
            WHEN ((o.revision > 0) AND (EXISTS ( SELECT
               FROM (outbox.generation g
                 LEFT JOIN LATERAL ( SELECT n_1.end_offsets
                       FROM outbox.batch n_1
                      WHERE ((n_1.generation = g.generation) AND (n_1.kind = 'stream'::text))
                      ORDER BY n_1.batch_id DESC
                     LIMIT 1) n ON (true))
              WHERE ((g.generation < b.generation) AND (((COALESCE(n.end_offsets, g.start_offsets) #>> ARRAY[s.topic_id, (s.partition)::text]))::bigint > s.end_offset))))) THEN 'reissued'::text
            ELSE 'closed'::text
        END AS what,
    (((((((((((('events '::text || s.topic_id) || '/'::text) || s.partition) || '/'::text) || s.start_offset) || ' to '::text) || s.end_offset) || ', '::text) || s.events) || ' in, '::text) || s.outputs) || ' outputs'::text) AS detail,
    o.batch_id,
    b.generation,
    o.revision
   FROM ((outbox.session_output o
     JOIN outbox.batch b ON (((b.batch_id = o.batch_id) AND (b.kind <> 'requeue'::text))))
     CROSS JOIN LATERAL UNNEST(o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends, o.session_events, o.session_outputs) s(topic_id, partition, start_offset, end_offset, events, outputs))
UNION ALL
 SELECT o.session_key,
    d.committed_at AS at,
        CASE d.kind
            WHEN 'resume'::text THEN 'skipped'::text
            ELSE 'delivered'::text
        END AS what,
        CASE d.kind
            WHEN 'resume'::text THEN (((((('passed over by resume '::text || d.seq) || ' of epoch '::text) || d.epoch) || ', lane '::text) || d.lane) || COALESCE((': '::text || d.note), ''::text))
            ELSE (((((((cardinality(o.topics) || ' outputs in delivery '::text) || d.seq) || ' of epoch '::text) || d.epoch) || ', lane '::text) || d.lane) ||
            CASE
                WHEN (d.kafka_offsets IS NULL) THEN ', offsets unknown'::text
                ELSE ''::text
            END)
        END AS detail,
    o.batch_id,
    b.generation,
    o.revision
   FROM ((outbox.session_output o
     JOIN outbox.batch b ON ((b.batch_id = o.batch_id)))
     JOIN outbox.delivery d ON (((d.lane = o.lane) AND (int8range(LEAST(d.after_batch, d.to_batch), d.to_batch, '[]'::text) @> o.batch_id) AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key))))
  WHERE (NOT (EXISTS ( SELECT
           FROM outbox.parked p
          WHERE ((p.session_key = o.session_key) AND (p.batch_id = o.batch_id) AND (p.after_seq < d.seq)))))
UNION ALL
 SELECT p.session_key,
    p.created_at AS at,
    'parked'::text AS what,
    ((p.reason || ': '::text) || p.detail) AS detail,
    p.batch_id,
    b.generation,
    NULL::integer AS revision
   FROM (outbox.parked p
     LEFT JOIN outbox.batch b ON ((b.batch_id = p.batch_id)))
UNION ALL
 SELECT p.session_key,
    p.state_changed_at AS at,
    p.state AS what,
    COALESCE(('goes out as batch '::text || p.requeued_batch), 'will not go out'::text) AS detail,
    p.batch_id,
    b.generation,
    NULL::integer AS revision
   FROM (outbox.parked p
     LEFT JOIN outbox.batch b ON ((b.batch_id = p.batch_id)))
  WHERE (p.state <> 'parked'::text)
UNION ALL
 SELECT d.session_key,
    d.created_at AS at,
    'dead-lettered'::text AS what,
    ((((((((((((((d.reason || ', letter '::text) || d.dead_letter_id) || ', '::text) || d.event_count) || ' events '::text) || d.topic) || '/'::text) || d.partition) || '/'::text) || d.first_offset) || ' to '::text) || d.last_offset) || ': '::text) || (regexp_match(rtrim(d.detail, '
'::text), '[^\n]*$'::text))[1]) AS detail,
    d.batch_id,
    d.generation,
    d.revision
   FROM outbox.dead_letter d
UNION ALL
 SELECT d.session_key,
    d.state_changed_at AS at,
    ('letter '::text || d.state) AS what,
    (('letter '::text || d.dead_letter_id) || COALESCE((', by batch '::text || d.resolved_batch), ''::text)) AS detail,
    d.batch_id,
    d.generation,
    d.revision
   FROM outbox.dead_letter d
  WHERE (d.state <> 'open'::text)
UNION ALL
 SELECT r.session_key,
    r.began_at AS at,
    'replayed'::text AS what,
    ((((((((r.output_events || ' outputs by replay '::text) || r.replay_id) || ', between '::text) || r.began_at) || ' and '::text) || COALESCE((r.ended_at)::text, 'now'::text)) || COALESCE((', to topic '::text || r.target_topic), ''::text)) ||
        CASE
            WHEN r.certain THEN ''::text
            ELSE ', unless it was among those it left out'::text
        END) AS detail,
    r.batch_id,
    NULL::integer AS generation,
    NULL::integer AS revision
   FROM outbox.audit_replayed r;

--
-- Name: VIEW audit_history; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_history IS 'What happened to a session key, one row per thing that happened. Ask by session_key, order by at.';

--
-- Name: COLUMN audit_history.session_key; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_history.session_key IS 'key of the session''s events';

--
-- Name: COLUMN audit_history.at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_history.at IS 'when; of a replay: when it was made';

--
-- Name: COLUMN audit_history.what; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_history.what IS 'closed, retried, reissued (again, with a higher revision): a session was committed; delivered; skipped; parked, requeued, discarded; dead-lettered, letter resolved, letter discarded; replayed';

--
-- Name: COLUMN audit_history.detail; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_history.detail IS 'in words';

--
-- Name: COLUMN audit_history.batch_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_history.batch_id IS 'number of the ledger row (outbox.batch) that it was committed with';

--
-- Name: COLUMN audit_history.generation; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_history.generation IS 'period with one assembly description and one revision (outbox.generation)';

--
-- Name: COLUMN audit_history.revision; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_history.revision IS 'NULL where it has none';

--
-- Name: audit_input; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_input AS
 SELECT COALESCE((g.topics ->> t.id), t.id) AS topic,
    (p.partition)::integer AS partition,
    (p.read_to)::bigint AS read_to,
    NULLIF(((o.open_state #>> ARRAY[t.id, p.partition, 'safe'::text]))::bigint, (p.read_to)::bigint) AS open_from,
    b.batch_id AS newest_batch,
    b.created_at AS committed_at,
    (now() - b.created_at) AS age,
    t.id AS topic_id
   FROM ((((outbox.generation g
     LEFT JOIN LATERAL ( SELECT n.batch_id,
            n.created_at,
            n.end_offsets,
            n.open_state
           FROM outbox.batch n
          WHERE ((n.generation = g.generation) AND (n.kind = 'stream'::text))
          ORDER BY n.batch_id DESC
         LIMIT 1) b ON (true))
     CROSS JOIN LATERAL ( SELECT COALESCE(b.end_offsets, g.start_offsets) AS end_offsets,
                CASE
                    WHEN (b.batch_id IS NULL) THEN g.open_state
                    ELSE b.open_state
                END AS open_state) o)
     CROSS JOIN LATERAL jsonb_each(o.end_offsets) t(id, partitions))
     CROSS JOIN LATERAL jsonb_each_text(t.partitions) p(partition, read_to))
  WHERE (g.generation = ( SELECT max(n.generation) AS max
           FROM outbox.generation n));

--
-- Name: VIEW audit_input; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_input IS 'How far each input partition is dealt with: by the newest batch of the stream, or by the newest generation''s start where that has committed none yet.';

--
-- Name: COLUMN audit_input.topic; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_input.topic IS 'input topic';

--
-- Name: COLUMN audit_input.partition; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_input.partition IS 'its partition';

--
-- Name: COLUMN audit_input.read_to; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_input.read_to IS 'everything below this offset is a session, a dead letter, a duplicate or still open; what Kafka has from here on was not read yet';

--
-- Name: COLUMN audit_input.open_from; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_input.open_from IS 'offset of the oldest event of a session that is still open, NULL: none is';

--
-- Name: COLUMN audit_input.newest_batch; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_input.newest_batch IS 'the newest batch of the stream, NULL: the newest generation has committed none yet';

--
-- Name: COLUMN audit_input.committed_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_input.committed_at IS 'when that was committed';

--
-- Name: COLUMN audit_input.age; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_input.age IS 'time since then: idle input, or a job that stands still (audit_service)';

--
-- Name: COLUMN audit_input.topic_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_input.topic_id IS 'id of the topic';

--
-- Name: audit_key_without_output; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_key_without_output AS
 SELECT session_key,
    sum(sessions) AS sessions,
    sum(letters) AS dead_letters,
    sum(open_letters) AS open_letters,
    min(at) AS first_at,
    max(at) AS newest_at
   FROM ( SELECT o.session_key,
            cardinality(o.session_ends) AS sessions,
            0 AS letters,
            0 AS open_letters,
            cardinality(o.topics) AS outputs,
            b.created_at AS at
           FROM (outbox.session_output o
             JOIN outbox.batch b ON ((b.batch_id = o.batch_id)))
        UNION ALL
         SELECT d.session_key,
            0,
            1,
                CASE
                    WHEN (d.state = 'open'::text) THEN 1
                    ELSE 0
                END AS "case",
            0,
            d.created_at
           FROM outbox.dead_letter d
          WHERE (d.session_key IS NOT NULL)) k
  GROUP BY session_key
 HAVING (sum(outputs) = 0);

--
-- Name: VIEW audit_key_without_output; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_key_without_output IS 'Session keys that were seen, but that never produced an output, of what is kept: their sessions are dead letters, or the transform returned nothing for them. Reads everything.';

--
-- Name: COLUMN audit_key_without_output.session_key; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_key_without_output.session_key IS 'key of the sessions';

--
-- Name: COLUMN audit_key_without_output.sessions; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_key_without_output.sessions IS 'sessions for which the transform returned no output';

--
-- Name: COLUMN audit_key_without_output.dead_letters; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_key_without_output.dead_letters IS 'dead letters, whatever their state';

--
-- Name: COLUMN audit_key_without_output.open_letters; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_key_without_output.open_letters IS 'dead letters that nobody has retried or discarded';

--
-- Name: COLUMN audit_key_without_output.first_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_key_without_output.first_at IS 'when the first of them was committed';

--
-- Name: COLUMN audit_key_without_output.newest_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_key_without_output.newest_at IS 'when the newest of them was committed';

--
-- Name: audit_minute; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_minute AS
 SELECT m.minute,
    b.batches,
    b.input_events,
    b.sessions,
    b.output_events,
    b.dead_letters,
    d.deliveries,
    d.sessions AS delivered_sessions,
    d.events AS delivered_events,
    d.worst_lag_s
   FROM (((( SELECT LEAST(( SELECT min(b_1.created_at) AS min
                   FROM outbox.batch b_1), ( SELECT min(d_1.committed_at) AS min
                   FROM outbox.delivery d_1)) AS first,
            GREATEST(( SELECT max(b_1.created_at) AS max
                   FROM outbox.batch b_1), ( SELECT max(d_1.committed_at) AS max
                   FROM outbox.delivery d_1)) AS last) span
     CROSS JOIN LATERAL generate_series(date_trunc('minute'::text, span.first), span.last, '00:01:00'::interval) m(minute))
     CROSS JOIN LATERAL ( SELECT count(*) AS commits,
            count(DISTINCT ROW(b_1.run_id, b_1.spark_batch)) FILTER (WHERE (b_1.kind = 'stream'::text)) AS batches,
            (COALESCE(sum(b_1.input_events), (0)::numeric))::bigint AS input_events,
            COALESCE(sum(b_1.sessions), (0)::bigint) AS sessions,
            (COALESCE(sum(b_1.output_events), (0)::numeric))::bigint AS output_events,
            COALESCE(sum(b_1.dead_letters), (0)::bigint) AS dead_letters
           FROM outbox.batch b_1
          WHERE ((b_1.kind <> 'requeue'::text) AND (b_1.created_at >= m.minute) AND (b_1.created_at < (m.minute + '00:01:00'::interval)))) b)
     CROSS JOIN LATERAL ( SELECT count(*) AS deliveries,
            (COALESCE(sum(d_1.sessions), (0)::numeric))::bigint AS sessions,
            (COALESCE(sum(d_1.events), (0)::numeric))::bigint AS events,
            (EXTRACT(epoch FROM max((d_1.committed_at - ( SELECT b_1.created_at
                   FROM outbox.batch b_1
                  WHERE (b_1.batch_id = ( SELECT o.batch_id
                           FROM outbox.session_output o
                          WHERE ((o.lane = d_1.lane) AND outbox.cursor_covers(d_1.after_batch, d_1.after_key, d_1.to_batch, d_1.to_key, o.batch_id, o.session_key))
                          ORDER BY o.batch_id, o.session_key
                         LIMIT 1)))))))::double precision AS worst_lag_s
           FROM outbox.delivery d_1
          WHERE ((d_1.committed_at >= m.minute) AND (d_1.committed_at < (m.minute + '00:01:00'::interval)) AND (d_1.kind = 'delivery'::text) AND (d_1.sessions > 0))) d)
  WHERE ((b.commits > 0) OR (d.deliveries > 0));

--
-- Name: VIEW audit_minute; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_minute IS 'Throughput and lag by minute. Ask by minute. Minutes in which nothing happened have no row.';

--
-- Name: COLUMN audit_minute.minute; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_minute.minute IS 'begin of the minute';

--
-- Name: COLUMN audit_minute.batches; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_minute.batches IS 'Spark batches committed in this minute';

--
-- Name: COLUMN audit_minute.input_events; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_minute.input_events IS 'input events read by them';

--
-- Name: COLUMN audit_minute.sessions; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_minute.sessions IS 'sessions closed by them and by retries of dead letters; copies of parked rows do not count again';

--
-- Name: COLUMN audit_minute.output_events; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_minute.output_events IS 'output events of these sessions';

--
-- Name: COLUMN audit_minute.dead_letters; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_minute.dead_letters IS 'dead letters written by them';

--
-- Name: COLUMN audit_minute.deliveries; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_minute.deliveries IS 'Kafka transactions that carried events, recorded in this minute';

--
-- Name: COLUMN audit_minute.delivered_sessions; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_minute.delivered_sessions IS 'sessions sent by them';

--
-- Name: COLUMN audit_minute.delivered_events; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_minute.delivered_events IS 'output events sent by them';

--
-- Name: COLUMN audit_minute.worst_lag_s; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_minute.worst_lag_s IS 'seconds from the commit of a batch to the delivery of its rows, the longest of this minute''s deliveries; NULL: nothing sent, or the rows are dropped. Of rows that are dropped in part: the oldest that is left';

--
-- Name: operation; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.operation (
    operation_id bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    login text DEFAULT SESSION_USER NOT NULL,
    client inet DEFAULT inet_client_addr(),
    os_user text NOT NULL,
    host text NOT NULL,
    command text NOT NULL,
    arguments jsonb NOT NULL,
    result jsonb NOT NULL,
    CONSTRAINT operation_named CHECK (((command <> ''::text) AND (os_user <> ''::text) AND (host <> ''::text)))
);

--
-- Name: TABLE operation; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON TABLE outbox.operation IS 'The operator log: what commands changed, each row in the transaction of its change. Append-only: no service role updates or deletes.';

--
-- Name: COLUMN operation.operation_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.operation.operation_id IS 'number of the row';

--
-- Name: COLUMN operation.at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.operation.at IS 'when, by the clock of Postgres';

--
-- Name: COLUMN operation.login; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.operation.login IS 'the Postgres login, whatever SET ROLE said';

--
-- Name: COLUMN operation.client; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.operation.client IS 'address from which the connection came; NULL: a socket on the server itself';

--
-- Name: COLUMN operation.os_user; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.operation.os_user IS 'user of the process, as the process says';

--
-- Name: COLUMN operation.host; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.operation.host IS 'host of the process, as the process says';

--
-- Name: COLUMN operation.command; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.operation.command IS 'the command, without its options';

--
-- Name: COLUMN operation.arguments; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.operation.arguments IS 'what it was asked for, without secrets; session keys only as their number';

--
-- Name: COLUMN operation.result; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.operation.result IS 'what this transaction changed';

--
-- Name: audit_operation; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_operation AS
 SELECT operation_id,
    at,
    login,
    client,
    os_user,
    host,
    command,
    arguments,
    result
   FROM outbox.operation o
  ORDER BY operation_id DESC;

--
-- Name: VIEW audit_operation; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_operation IS 'What people had the commands change, newest first; LIMIT reads no more than it returns. Each row committed with its change.';

--
-- Name: COLUMN audit_operation.operation_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_operation.operation_id IS 'number of the row';

--
-- Name: COLUMN audit_operation.at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_operation.at IS 'when, by the clock of Postgres';

--
-- Name: COLUMN audit_operation.login; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_operation.login IS 'the Postgres login';

--
-- Name: COLUMN audit_operation.client; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_operation.client IS 'address from which the connection came; NULL: a socket on the server itself';

--
-- Name: COLUMN audit_operation.os_user; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_operation.os_user IS 'user of the process, as the process says';

--
-- Name: COLUMN audit_operation.host; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_operation.host IS 'host of the process, as the process says';

--
-- Name: COLUMN audit_operation.command; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_operation.command IS 'the command, without its options';

--
-- Name: COLUMN audit_operation.arguments; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_operation.arguments IS 'what it was asked for';

--
-- Name: COLUMN audit_operation.result; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_operation.result IS 'what this transaction changed';

--
-- Name: audit_reconciliation; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_reconciliation AS
 SELECT check_name,
    severity,
    epoch,
    lane,
    batch_id,
    (session_key COLLATE "C") AS session_key,
    detail
   FROM outbox.audit_reconcile() r(check_name, severity, epoch, lane, batch_id, session_key, detail);

--
-- Name: VIEW audit_reconciliation; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_reconciliation IS 'What does not agree: no rows when all is well. Reads the whole outbox; outbox.audit_reconcile(from_batch, to_batch) does the same for a range of batches.';

--
-- Name: COLUMN audit_reconciliation.check_name; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_reconciliation.check_name IS 'which check found it';

--
-- Name: COLUMN audit_reconciliation.severity; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_reconciliation.severity IS 'critical: outputs are or will be missing or there twice; error: the records about them disagree';

--
-- Name: COLUMN audit_reconciliation.epoch; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_reconciliation.epoch IS 'lane epoch (outbox.lane_epoch)';

--
-- Name: COLUMN audit_reconciliation.lane; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_reconciliation.lane IS 'lane of the publisher that sends it';

--
-- Name: COLUMN audit_reconciliation.batch_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_reconciliation.batch_id IS 'batch that shows it, NULL: none';

--
-- Name: COLUMN audit_reconciliation.session_key; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_reconciliation.session_key IS 'session key that shows it, NULL: none';

--
-- Name: COLUMN audit_reconciliation.detail; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_reconciliation.detail IS 'in words';

--
-- Name: audit_replay; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_replay AS
 SELECT r.replay_id,
        CASE
            WHEN ((r.state = 'running'::text) AND (NOT h.held)) THEN 'interrupted'::text
            ELSE r.state
        END AS state,
    r.created_at AS began_at,
        CASE
            WHEN (r.state = ANY (ARRAY['done'::text, 'cancelled'::text])) THEN r.state_changed_at
            ELSE NULL::timestamp with time zone
        END AS ended_at,
    r.from_batch,
    r.to_batch,
    r.topics,
    r.only_keys,
    r.target_topic,
    r.target_servers,
    r.rows_sent,
    r.rows_total,
    r.events_sent,
    r.events_total,
    r.rows_skipped,
    r.cursor_batch,
    r.cursor_key,
    r.reason,
    r.requested,
    r.replay_uuid
   FROM (outbox.replay r
     CROSS JOIN LATERAL ( SELECT COALESCE(((r.lease_until >= now()) AND (EXISTS ( SELECT
                   FROM pg_stat_activity a
                  WHERE ((a.pid = r.lease_backend_pid) AND ((a.backend_start = r.lease_backend_start) IS NOT FALSE))))), false) AS held) h);

--
-- Name: VIEW audit_replay; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_replay IS 'Replays: what was sent once more on request, and how far they are.';

--
-- Name: COLUMN audit_replay.replay_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.replay_id IS 'number of the replay';

--
-- Name: COLUMN audit_replay.state; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.state IS 'running, interrupted (nobody works on it), paused, done or cancelled';

--
-- Name: COLUMN audit_replay.began_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.began_at IS 'when the replay was made';

--
-- Name: COLUMN audit_replay.ended_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.ended_at IS 'when the replay was done or cancelled, NULL: not yet';

--
-- Name: COLUMN audit_replay.from_batch; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.from_batch IS 'first batch that it covers';

--
-- Name: COLUMN audit_replay.to_batch; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.to_batch IS 'last batch that it covers';

--
-- Name: COLUMN audit_replay.topics; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.topics IS 'only outputs for these topics, NULL: all';

--
-- Name: COLUMN audit_replay.only_keys; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.only_keys IS 'only the keys in outbox.replay_key';

--
-- Name: COLUMN audit_replay.target_topic; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.target_topic IS 'topic that it sends to, NULL: each event''s own';

--
-- Name: COLUMN audit_replay.target_servers; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.target_servers IS 'bootstrap servers of the target';

--
-- Name: COLUMN audit_replay.rows_sent; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.rows_sent IS 'rows sent so far';

--
-- Name: COLUMN audit_replay.rows_total; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.rows_total IS 'rows to send, counted when it was made';

--
-- Name: COLUMN audit_replay.events_sent; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.events_sent IS 'output events sent so far';

--
-- Name: COLUMN audit_replay.events_total; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.events_total IS 'output events to send, counted when it was made';

--
-- Name: COLUMN audit_replay.rows_skipped; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.rows_skipped IS 'rows that the target refused and that were left out';

--
-- Name: COLUMN audit_replay.cursor_batch; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.cursor_batch IS 'how far it is';

--
-- Name: COLUMN audit_replay.cursor_key; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.cursor_key IS 'how far it is in that batch, NULL: all of it';

--
-- Name: COLUMN audit_replay.reason; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.reason IS 'why it stands still or failed';

--
-- Name: COLUMN audit_replay.requested; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.requested IS 'the filter as it was given';

--
-- Name: COLUMN audit_replay.replay_uuid; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_replay.replay_uuid IS 'header outbox-replay of what it sent';

--
-- Name: audit_sent; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_sent AS
 SELECT d.committed_at AS sent_at,
    e.topic,
    o.session_key,
    ((((((s.topic_id || '/'::text) || s.partition) || '/'::text) || s.end_offset) || '/'::text) || ((e.n - s.before) - 1)) AS outbox_id,
    o.revision,
        CASE
            WHEN (e.partition IS NULL) THEN (d.kafka_offsets -> e.topic)
            WHEN ((d.kafka_offsets #> ARRAY[e.topic, (e.partition)::text]) IS NOT NULL) THEN jsonb_build_object(e.partition, (d.kafka_offsets #> ARRAY[e.topic, (e.partition)::text]))
            ELSE NULL::jsonb
        END AS kafka_offsets,
    o.batch_id,
    b.created_at AS committed_at,
    (d.committed_at - b.created_at) AS lag,
    e.value,
    COALESCE(e.key, convert_to(o.session_key, 'UTF8'::name)) AS key,
    e.headers,
    d.epoch,
    d.lane,
    d.seq AS delivery_seq
   FROM (((((outbox.delivery d
     JOIN outbox.lane_epoch ep ON ((ep.epoch = d.epoch)))
     CROSS JOIN LATERAL ( SELECT r.session_key,
            r.batch_id,
            r.lane,
            r.revision,
            r.session_topic_ids,
            r.session_partitions,
            r.session_starts,
            r.session_ends,
            r.session_started_ms,
            r.session_ended_ms,
            r.session_events,
            r.session_outputs,
            r.topics,
            r."values",
            r.keys,
            r.headers,
            r.partitions,
            r.timestamps_ms
           FROM outbox.session_output r
          WHERE ((r.lane = d.lane) AND (r.batch_id >= ep.from_batch) AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, r.batch_id, r.session_key) AND (NOT (EXISTS ( SELECT
                   FROM outbox.parked p
                  WHERE ((p.session_key = r.session_key) AND (p.batch_id = r.batch_id) AND (p.after_seq < d.seq))))))
         OFFSET 0) o)
     JOIN outbox.batch b ON ((b.batch_id = o.batch_id)))
     CROSS JOIN LATERAL ( SELECT t.topic_id,
            t.partition,
            t.end_offset,
            t.outputs,
            t.n,
            (sum(t.outputs) OVER (ORDER BY t.n) - t.outputs) AS before
           FROM UNNEST(o.session_topic_ids, o.session_partitions, o.session_ends, o.session_outputs) WITH ORDINALITY t(topic_id, partition, end_offset, outputs, n)) s)
     JOIN LATERAL UNNEST(o.topics, o.keys, o."values", o.headers, o.partitions) WITH ORDINALITY e(topic, key, value, headers, partition, n) ON (((e.n > s.before) AND (e.n <= (s.before + s.outputs)))))
  WHERE ((d.kind = 'delivery'::text) AND (d.sessions > 0));

--
-- Name: VIEW audit_sent; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_sent IS 'What was sent to a topic: one row per output event and Kafka transaction of a lane that carried it. Ask by sent_at. What replays sent is in audit_replayed. Rows that retention has dropped are not here any more.';

--
-- Name: COLUMN audit_sent.sent_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_sent.sent_at IS 'when the transaction was recorded, right after Kafka''s commit';

--
-- Name: COLUMN audit_sent.topic; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_sent.topic IS 'output topic';

--
-- Name: COLUMN audit_sent.session_key; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_sent.session_key IS 'key of the session''s events';

--
-- Name: COLUMN audit_sent.outbox_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_sent.outbox_id IS 'header outbox-id: <input topic id>/<partition>/<offset of the session''s last event>/<index>';

--
-- Name: COLUMN audit_sent.revision; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_sent.revision IS '0; more after a restore with policy reissue, as the header outbox-revision says';

--
-- Name: COLUMN audit_sent.kafka_offsets; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_sent.kafka_offsets IS '{partition: [first, last offset]} of its transaction in this topic, other rows'' records among them; with one partition named, that is the event''s. NULL: the offsets were lost in a crash, or it was not sent';

--
-- Name: COLUMN audit_sent.batch_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_sent.batch_id IS 'number of the ledger row (outbox.batch) that it was committed with';

--
-- Name: COLUMN audit_sent.committed_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_sent.committed_at IS 'when the batch was committed to the outbox';

--
-- Name: COLUMN audit_sent.lag; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_sent.lag IS 'from the commit to the outbox until sent_at';

--
-- Name: COLUMN audit_sent.value; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_sent.value IS 'value of the Kafka record, NULL: a tombstone';

--
-- Name: COLUMN audit_sent.key; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_sent.key IS 'key of the Kafka record';

--
-- Name: COLUMN audit_sent.headers; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_sent.headers IS 'the transform''s own headers, [[name, value], ...]; NULL: none';

--
-- Name: COLUMN audit_sent.epoch; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_sent.epoch IS 'lane epoch (outbox.lane_epoch)';

--
-- Name: COLUMN audit_sent.lane; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_sent.lane IS 'lane of the publisher that sends it';

--
-- Name: COLUMN audit_sent.delivery_seq; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_sent.delivery_seq IS 'number of the Kafka transaction in its lane (outbox.delivery)';

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
    ended_at timestamp with time zone,
    heartbeat_at timestamp with time zone
);

--
-- Name: COLUMN publisher_process.heartbeat_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.publisher_process.heartbeat_at IS 'its last heartbeat';

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
-- Name: audit_service; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_service AS
 SELECT 'spark-job'::text AS service,
        CASE
            WHEN (w.run_id IS NULL) THEN 'none'::text
            WHEN (EXISTS ( SELECT
               FROM pg_stat_activity a
              WHERE ((a.pid = w.backend_pid) AND ((a.backend_start = w.backend_start) IS NOT FALSE)))) THEN 'running'::text
            ELSE 'gone'::text
        END AS state,
    w.host,
    w.pid,
    w.started_at,
    w.heartbeat_at AS seen_at,
    ('held back: '::text || w.held_back_because) AS detail
   FROM outbox.writer w
UNION ALL
 SELECT 'publisher'::text AS service,
        CASE
            WHEN w.withdrawn THEN 'withdrawn'::text
            WHEN (w.connected AND (p.alive_until >= now())) THEN 'running'::text
            ELSE 'gone'::text
        END AS state,
    p.host,
    p.pid,
    p.started_at,
    COALESCE(p.heartbeat_at, LEAST(p.alive_until, now())) AS seen_at,
        CASE
            WHEN w.withdrawn THEN 'takes no lanes: a lane of it hangs, or all of its lanes fail while other processes deliver; its /healthz says which'::text
            ELSE NULL::text
        END AS detail
   FROM ((outbox.publisher_process p
     CROSS JOIN LATERAL ( SELECT (EXISTS ( SELECT
                   FROM pg_stat_activity a
                  WHERE ((a.pid = p.backend_pid) AND ((a.backend_start = p.backend_start) IS NOT FALSE)))) AS connected
         OFFSET 0) c)
     CROSS JOIN LATERAL ( SELECT c.connected,
            (c.connected AND COALESCE((p.heartbeat_at >= p.alive_until), false)) AS withdrawn) w)
  WHERE ((p.ended_at IS NULL) AND (p.alive_until > (now() - '1 day'::interval)))
UNION ALL
 SELECT 'publisher'::text AS service,
    'none'::text AS state,
    NULL::text AS host,
    NULL::integer AS pid,
    NULL::timestamp with time zone AS started_at,
    NULL::timestamp with time zone AS seen_at,
    NULL::text AS detail
  WHERE (NOT (EXISTS ( SELECT
           FROM outbox.publisher_process p
          WHERE ((p.ended_at IS NULL) AND (p.alive_until > (now() - '1 day'::interval))))));

--
-- Name: VIEW audit_service; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_service IS 'Who is at work: the job, and each publisher process of the last day that has not ended in order. A service that nobody runs has one row with state none.';

--
-- Name: COLUMN audit_service.service; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_service.service IS 'spark-job or publisher';

--
-- Name: COLUMN audit_service.state; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_service.state IS 'running; withdrawn: a publisher that lives and takes no lanes; gone: killed, or its machine is; none: nobody runs it';

--
-- Name: COLUMN audit_service.host; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_service.host IS 'its machine';

--
-- Name: COLUMN audit_service.pid; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_service.pid IS 'its process id there';

--
-- Name: COLUMN audit_service.started_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_service.started_at IS 'when it took the outbox over (job) or began (publisher)';

--
-- Name: COLUMN audit_service.seen_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_service.seen_at IS 'its last sign of life, as far as it wrote one';

--
-- Name: COLUMN audit_service.detail; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_service.detail IS 'why the job holds itself back, or why a publisher takes no lanes; NULL: neither';

--
-- Name: output_row; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.output_row AS
 SELECT o.session_key,
    o.batch_id,
    o.lane,
    o.revision,
    o.session_topic_ids,
    o.session_partitions,
    o.session_starts,
    o.session_ends,
    o.session_started_ms,
    o.session_ended_ms,
    o.session_events,
    o.session_outputs,
    o.topics,
    o."values",
    o.keys,
    o.headers,
    o.partitions,
    o.timestamps_ms,
    b.created_at AS committed_at,
    b.kind AS batch_kind,
    b.generation,
    ep.epoch,
        CASE
            WHEN (p.state IS NOT NULL) THEN p.state
            WHEN ((l.cursor_batch > o.batch_id) OR ((l.cursor_batch = o.batch_id) AND ((l.cursor_key IS NULL) OR (l.cursor_key >= o.session_key)))) THEN 'delivered'::text
            ELSE 'pending'::text
        END AS delivery_state,
    ( SELECT min((d.seq + 0)) AS min
           FROM outbox.delivery d
          WHERE ((d.epoch = ep.epoch) AND (d.lane = o.lane) AND (d.kind = 'delivery'::text) AND ((p.after_seq < d.seq) IS NOT TRUE) AND (int8range(LEAST(d.after_batch, d.to_batch), d.to_batch, '[]'::text) @> o.batch_id) AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key))) AS delivery_seq,
    ((p.state IS NULL) AND COALESCE(( SELECT bool_and((d.kind = 'resume'::text)) AS bool_and
           FROM outbox.delivery d
          WHERE ((d.epoch = ep.epoch) AND (d.lane = o.lane) AND (int8range(LEAST(d.after_batch, d.to_batch), d.to_batch, '[]'::text) @> o.batch_id) AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key))), false)) AS skipped
   FROM ((((outbox.session_output o
     JOIN outbox.batch b ON ((b.batch_id = o.batch_id)))
     LEFT JOIN LATERAL ( SELECT e.epoch
           FROM outbox.lane_epoch e
          WHERE (e.from_batch <= o.batch_id)
          ORDER BY e.from_batch DESC
         LIMIT 1) ep ON (true))
     LEFT JOIN outbox.lane l ON (((l.epoch = ep.epoch) AND (l.lane = o.lane))))
     LEFT JOIN outbox.parked p ON (((p.session_key = o.session_key) AND (p.batch_id = o.batch_id))));

--
-- Name: VIEW output_row; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.output_row IS 'Rows of session_output with epoch, delivery state and the first delivery that carried them; skipped: only a resume passed over them.';

--
-- Name: audit_session; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_session AS
 SELECT o.session_key,
    o.batch_id,
    COALESCE((g.topics ->> s.topic_id), ( SELECT (x.topics ->> s.topic_id)
           FROM outbox.generation x
          WHERE (x.topics ? s.topic_id)
          ORDER BY x.generation DESC
         LIMIT 1)) AS topic,
    s.partition,
    s.start_offset,
    s.end_offset,
    to_timestamp((((s.started_ms)::numeric / 1000.0))::double precision) AS started_at,
    to_timestamp((((s.ended_ms)::numeric / 1000.0))::double precision) AS ended_at,
    s.events AS input_events,
    s.outputs AS output_events,
    o.batch_kind,
    o.generation,
    o.revision,
    o.committed_at,
        CASE
            WHEN ((o.delivery_state = 'delivered'::text) AND (d.seq IS NULL) AND o.skipped) THEN 'skipped'::text
            ELSE o.delivery_state
        END AS state,
    d.committed_at AS delivered_at,
    o.epoch,
    o.lane,
    d.seq AS delivery_seq,
    s.topic_id
   FROM (((outbox.output_row o
     JOIN outbox.generation g ON ((g.generation = o.generation)))
     LEFT JOIN outbox.delivery d ON (((d.epoch = o.epoch) AND (d.lane = o.lane) AND (d.seq = o.delivery_seq))))
     CROSS JOIN LATERAL UNNEST(o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends, o.session_started_ms, o.session_ended_ms, o.session_events, o.session_outputs) s(topic_id, partition, start_offset, end_offset, started_ms, ended_ms, events, outputs));

--
-- Name: VIEW audit_session; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_session IS 'What became of a session: one row per session. Ask by session_key, or by batch_id.';

--
-- Name: COLUMN audit_session.session_key; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.session_key IS 'key of the session''s events';

--
-- Name: COLUMN audit_session.batch_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.batch_id IS 'number of the ledger row (outbox.batch) that it was committed with';

--
-- Name: COLUMN audit_session.topic; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.topic IS 'input topic';

--
-- Name: COLUMN audit_session.partition; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.partition IS 'input partition';

--
-- Name: COLUMN audit_session.start_offset; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.start_offset IS 'offset of its start event';

--
-- Name: COLUMN audit_session.end_offset; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.end_offset IS 'offset of its end event';

--
-- Name: COLUMN audit_session.started_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.started_at IS 'event time of its start';

--
-- Name: COLUMN audit_session.ended_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.ended_at IS 'event time of its end';

--
-- Name: COLUMN audit_session.input_events; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.input_events IS 'events that it consists of';

--
-- Name: COLUMN audit_session.output_events; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.output_events IS 'events that the transform made of it; 0 is possible';

--
-- Name: COLUMN audit_session.batch_kind; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.batch_kind IS 'stream; retry: out of a dead letter; requeue: a copy of a row that was parked';

--
-- Name: COLUMN audit_session.generation; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.generation IS 'period with one assembly description and one revision (outbox.generation)';

--
-- Name: COLUMN audit_session.revision; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.revision IS '0; more after a restore with policy reissue, as the header outbox-revision says';

--
-- Name: COLUMN audit_session.committed_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.committed_at IS 'when the batch was committed to the outbox';

--
-- Name: COLUMN audit_session.state; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.state IS 'delivered; pending; parked, requeued, discarded: Kafka refused the row for itself (outbox.parked); skipped: a resume passed over it';

--
-- Name: COLUMN audit_session.delivered_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.delivered_at IS 'when the first transaction that carried it was recorded, right after Kafka''s commit; NULL: not sent, or retention has that record no more';

--
-- Name: COLUMN audit_session.epoch; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.epoch IS 'lane epoch (outbox.lane_epoch)';

--
-- Name: COLUMN audit_session.lane; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.lane IS 'lane of the publisher that sends it';

--
-- Name: COLUMN audit_session.delivery_seq; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.delivery_seq IS 'number of the Kafka transaction in its lane (outbox.delivery)';

--
-- Name: COLUMN audit_session.topic_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session.topic_id IS 'Kafka''s id of the input topic';

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
    o.delivery_state,
    o.committed_at,
    o.batch_kind,
    o.generation,
    o.epoch,
    o.delivery_seq,
    o.skipped
   FROM ((outbox.output_row o
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
     JOIN LATERAL UNNEST(o.topics, o.keys, o."values", o.headers, o.partitions, o.timestamps_ms) WITH ORDINALITY e(topic, key, value, headers, partition, timestamp_ms, n) ON (((e.n > s.before) AND (e.n <= (s.before + s.outputs)))));

--
-- Name: audit_session_output; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_session_output AS
 SELECT e.session_key,
    e.batch_id,
    e.outbox_id,
    e.revision,
    e.topic,
        CASE
            WHEN (e.target_partition IS NULL) THEN (d.kafka_offsets -> e.topic)
            WHEN ((d.kafka_offsets #> ARRAY[e.topic, (e.target_partition)::text]) IS NOT NULL) THEN jsonb_build_object(e.target_partition, (d.kafka_offsets #> ARRAY[e.topic, (e.target_partition)::text]))
            ELSE NULL::jsonb
        END AS kafka_offsets,
        CASE
            WHEN ((e.delivery_state = 'delivered'::text) AND (d.seq IS NULL) AND e.skipped) THEN 'skipped'::text
            ELSE e.delivery_state
        END AS state,
    e.committed_at,
    d.committed_at AS delivered_at,
    e.value_json,
    e.value,
    e.key,
    e.headers,
    e.generation,
    e.epoch,
    e.lane,
    d.seq AS delivery_seq
   FROM (outbox.event e
     LEFT JOIN outbox.delivery d ON (((d.epoch = e.epoch) AND (d.lane = e.lane) AND (d.seq = e.delivery_seq))));

--
-- Name: VIEW audit_session_output; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_session_output IS 'Where each output of a session went: one row per output event. Ask by session_key, or by batch_id.';

--
-- Name: COLUMN audit_session_output.session_key; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session_output.session_key IS 'key of the session''s events';

--
-- Name: COLUMN audit_session_output.batch_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session_output.batch_id IS 'number of the ledger row (outbox.batch) that it was committed with';

--
-- Name: COLUMN audit_session_output.outbox_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session_output.outbox_id IS 'header outbox-id: <input topic id>/<partition>/<offset of the session''s last event>/<index>';

--
-- Name: COLUMN audit_session_output.revision; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session_output.revision IS '0; more after a restore with policy reissue, as the header outbox-revision says';

--
-- Name: COLUMN audit_session_output.topic; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session_output.topic IS 'output topic';

--
-- Name: COLUMN audit_session_output.kafka_offsets; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session_output.kafka_offsets IS '{partition: [first, last offset]} of its transaction in this topic, other rows'' records among them; with one partition named, that is the event''s. NULL: the offsets were lost in a crash, or it was not sent';

--
-- Name: COLUMN audit_session_output.state; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session_output.state IS 'delivered, pending, parked, requeued, discarded or skipped, as in audit_session';

--
-- Name: COLUMN audit_session_output.committed_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session_output.committed_at IS 'when the batch was committed to the outbox';

--
-- Name: COLUMN audit_session_output.delivered_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session_output.delivered_at IS 'when the first transaction that carried it was recorded; NULL: not sent, or retention has that record no more';

--
-- Name: COLUMN audit_session_output.value_json; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session_output.value_json IS 'the value as JSON, NULL where it is none';

--
-- Name: COLUMN audit_session_output.value; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session_output.value IS 'value of the Kafka record, NULL: a tombstone';

--
-- Name: COLUMN audit_session_output.key; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session_output.key IS 'key of the Kafka record';

--
-- Name: COLUMN audit_session_output.headers; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session_output.headers IS 'the transform''s own headers, [[name, value], ...]; NULL: none';

--
-- Name: COLUMN audit_session_output.generation; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session_output.generation IS 'period with one assembly description and one revision (outbox.generation)';

--
-- Name: COLUMN audit_session_output.epoch; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session_output.epoch IS 'lane epoch (outbox.lane_epoch)';

--
-- Name: COLUMN audit_session_output.lane; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session_output.lane IS 'lane of the publisher that sends it';

--
-- Name: COLUMN audit_session_output.delivery_seq; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_session_output.delivery_seq IS 'number of the Kafka transaction in its lane (outbox.delivery)';

--
-- Name: audit_topic_minute; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_topic_minute AS
 SELECT m.minute,
    t.topic,
    t.output_events,
    t.deliveries
   FROM ((( SELECT min(d.committed_at) AS first,
            max(d.committed_at) AS last
           FROM outbox.delivery d) span
     CROSS JOIN LATERAL generate_series(date_trunc('minute'::text, span.first), span.last, '00:01:00'::interval) m(minute))
     CROSS JOIN LATERAL ( SELECT c.topic,
            (sum(c.events))::bigint AS output_events,
            count(*) AS deliveries
           FROM (outbox.delivery d
             CROSS JOIN LATERAL ( SELECT e.topic,
                    count(*) AS events
                   FROM (outbox.session_output o
                     CROSS JOIN LATERAL unnest(o.topics) e(topic))
                  WHERE ((o.lane = d.lane) AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key) AND (NOT (EXISTS ( SELECT
                           FROM outbox.parked p
                          WHERE ((p.session_key = o.session_key) AND (p.batch_id = o.batch_id) AND (p.after_seq < d.seq))))))
                  GROUP BY e.topic) c)
          WHERE ((d.committed_at >= m.minute) AND (d.committed_at < (m.minute + '00:01:00'::interval)) AND (d.kind = 'delivery'::text) AND (d.sessions > 0))
          GROUP BY c.topic) t);

--
-- Name: VIEW audit_topic_minute; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_topic_minute IS 'How much was sent to each topic in each minute, replays left out. Ask by minute: it reads the rows that were sent then. Rows that retention has dropped count no more.';

--
-- Name: COLUMN audit_topic_minute.minute; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_topic_minute.minute IS 'begin of the minute';

--
-- Name: COLUMN audit_topic_minute.topic; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_topic_minute.topic IS 'output topic';

--
-- Name: COLUMN audit_topic_minute.output_events; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_topic_minute.output_events IS 'output events sent in this minute';

--
-- Name: COLUMN audit_topic_minute.deliveries; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_topic_minute.deliveries IS 'Kafka transactions with events for this topic';

--
-- Name: audit_undelivered; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_undelivered AS
 SELECT l.epoch,
    l.lane,
        CASE
            WHEN (l.stopped_why IS NOT NULL) THEN 'stopped'::text
            WHEN l.held THEN 'running'::text
            WHEN (l.epoch > ( SELECT min(f.epoch) AS min
               FROM outbox.lane_position f
              WHERE (NOT f.ended))) THEN 'waiting'::text
            ELSE 'nobody'::text
        END AS publisher,
    b.batch_id AS oldest_batch,
    b.created_at AS oldest_committed_at,
    (now() - b.created_at) AS oldest_age,
    (l.last_batch - GREATEST(l.cursor_batch, (l.from_batch - 1))) AS batches_behind,
    ( SELECT count(*) AS count
           FROM outbox.session_output o
          WHERE ((o.lane = l.lane) AND (o.batch_id >= GREATEST(l.cursor_batch, l.from_batch)) AND (o.batch_id <= l.last_batch) AND ((o.batch_id > l.cursor_batch) OR (o.session_key > l.cursor_key)))) AS waiting_rows,
    l.stopped_reason
   FROM ((outbox.lane_position l
     CROSS JOIN LATERAL ( SELECT o.batch_id
           FROM outbox.session_output o
          WHERE ((o.lane = l.lane) AND (o.batch_id >= GREATEST(l.cursor_batch, l.from_batch)) AND (o.batch_id <= l.last_batch) AND ((o.batch_id > l.cursor_batch) OR (o.session_key > l.cursor_key)))
          ORDER BY o.batch_id, o.session_key
         LIMIT 1) oldest)
     JOIN outbox.batch b ON ((b.batch_id = oldest.batch_id)))
  WHERE (NOT l.ended);

--
-- Name: VIEW audit_undelivered; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_undelivered IS 'Lanes with rows that wait to be delivered: no rows when nothing waits.';

--
-- Name: COLUMN audit_undelivered.epoch; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_undelivered.epoch IS 'lane epoch (outbox.lane_epoch)';

--
-- Name: COLUMN audit_undelivered.lane; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_undelivered.lane IS 'lane of the epoch';

--
-- Name: COLUMN audit_undelivered.publisher; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_undelivered.publisher IS 'running; nobody: no living process holds the lane; waiting: an earlier epoch is not through; stopped: see stopped_reason';

--
-- Name: COLUMN audit_undelivered.oldest_batch; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_undelivered.oldest_batch IS 'batch of the oldest row that waits';

--
-- Name: COLUMN audit_undelivered.oldest_committed_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_undelivered.oldest_committed_at IS 'when that was committed';

--
-- Name: COLUMN audit_undelivered.oldest_age; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_undelivered.oldest_age IS 'for how long it waits';

--
-- Name: COLUMN audit_undelivered.batches_behind; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_undelivered.batches_behind IS 'batches after the lane''s cursor, with rows in this lane or without';

--
-- Name: COLUMN audit_undelivered.waiting_rows; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_undelivered.waiting_rows IS 'rows that wait. Counted when it is asked for: seconds for millions; leave it out where the rest is enough';

--
-- Name: COLUMN audit_undelivered.stopped_reason; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_undelivered.stopped_reason IS 'why the lane is stopped, and the commands that mend it; of one that is not stopped: why it retries by itself';

--
-- Name: audit_undelivered_row; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.audit_undelivered_row AS
 SELECT l.epoch,
    l.lane,
    o.batch_id,
    o.session_key,
    o.committed_at,
    (now() - o.committed_at) AS age,
    o.sessions,
    o.output_events
   FROM (outbox.lane_position l
     CROSS JOIN LATERAL ( SELECT r.batch_id,
            r.session_key,
            cardinality(r.session_ends) AS sessions,
            cardinality(r.topics) AS output_events,
            ( SELECT b.created_at
                   FROM outbox.batch b
                  WHERE (b.batch_id = r.batch_id)) AS committed_at
           FROM outbox.session_output r
          WHERE ((r.lane = l.lane) AND (r.batch_id >= GREATEST(l.cursor_batch, l.from_batch)) AND (r.batch_id <= l.last_batch) AND ((r.batch_id > l.cursor_batch) OR (r.session_key > l.cursor_key)))
         OFFSET 0) o)
  WHERE (NOT l.ended);

--
-- Name: VIEW audit_undelivered_row; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.audit_undelivered_row IS 'Rows that wait to be delivered: one row per session key and batch.';

--
-- Name: COLUMN audit_undelivered_row.epoch; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_undelivered_row.epoch IS 'lane epoch (outbox.lane_epoch)';

--
-- Name: COLUMN audit_undelivered_row.lane; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_undelivered_row.lane IS 'lane of the publisher that sends it';

--
-- Name: COLUMN audit_undelivered_row.batch_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_undelivered_row.batch_id IS 'number of the ledger row (outbox.batch) that it was committed with';

--
-- Name: COLUMN audit_undelivered_row.session_key; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_undelivered_row.session_key IS 'key of the session''s events';

--
-- Name: COLUMN audit_undelivered_row.committed_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_undelivered_row.committed_at IS 'when the batch was committed to the outbox';

--
-- Name: COLUMN audit_undelivered_row.age; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_undelivered_row.age IS 'for how long it waits';

--
-- Name: COLUMN audit_undelivered_row.sessions; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_undelivered_row.sessions IS 'sessions in the row';

--
-- Name: COLUMN audit_undelivered_row.output_events; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.audit_undelivered_row.output_events IS 'output events in the row';

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
-- Name: erased_erased_id_seq; Type: SEQUENCE; Schema: outbox; Owner: -
--

ALTER TABLE outbox.erased ALTER COLUMN erased_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outbox.erased_erased_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: erased_key; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.erased_key (
    key_hash bytea NOT NULL,
    topic_id text NOT NULL,
    partition integer NOT NULL,
    generation integer NOT NULL,
    through bigint NOT NULL
);

--
-- Name: TABLE erased_key; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON TABLE outbox.erased_key IS 'Up to which offset of an input partition the events of a session key are erased. A reissue leaves them out.';

--
-- Name: COLUMN erased_key.key_hash; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased_key.key_hash IS 'outbox.key_hash(session key); of a record without one: outbox.record_hash(its position)';

--
-- Name: COLUMN erased_key.topic_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased_key.topic_id IS 'Kafka''s id of the input topic';

--
-- Name: COLUMN erased_key.partition; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased_key.partition IS 'input partition';

--
-- Name: COLUMN erased_key.generation; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased_key.generation IS 'the generation that read the events; from the cut of a later one on, offsets name other events';

--
-- Name: COLUMN erased_key.through; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.erased_key.through IS 'offset of the last event that is erased';

--
-- Name: erased_offset; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.erased_offset AS
 SELECT k.key_hash,
    k.topic_id,
    k.partition,
    LEAST(k.through, (c.cut - 1)) AS through
   FROM (outbox.erased_key k
     CROSS JOIN LATERAL ( SELECT min(((g.cut_offsets #>> ARRAY[k.topic_id, (k.partition)::text]))::bigint) AS cut
           FROM outbox.generation g
          WHERE ((g.generation > k.generation) AND (g.cut_offsets IS NOT NULL))) c);

--
-- Name: VIEW erased_offset; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.erased_offset IS 'outbox.erased_key without the offsets that name other events since a cut.';

--
-- Name: operation_operation_id_seq; Type: SEQUENCE; Schema: outbox; Owner: -
--

ALTER TABLE outbox.operation ALTER COLUMN operation_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outbox.operation_operation_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: output_lineage; Type: VIEW; Schema: outbox; Owner: -
--

CREATE VIEW outbox.output_lineage AS
 SELECT s.topic AS input_topic,
    s.topic_id AS input_topic_id,
    s.partition AS input_partition,
    s.start_offset AS first_offset,
    s.end_offset AS last_offset,
    s.input_events,
    s.session_key,
    s.started_at,
    s.ended_at,
    s.batch_id,
    s.batch_kind,
    s.generation,
    b.run_id,
    b.transform_fingerprint,
    g.assembly,
    s.committed_at,
    o.outbox_id,
    o.revision,
    o.epoch,
    o.lane,
    o.delivery_seq,
    o.state,
    o.delivered_at,
    o.topic,
    o.kafka_offsets
   FROM (((outbox.audit_session s
     JOIN outbox.audit_session_output o ON (((o.session_key = s.session_key) AND (o.batch_id = s.batch_id) AND (split_part(o.outbox_id, '/'::text, 1) = s.topic_id) AND ((split_part(o.outbox_id, '/'::text, 2))::integer = s.partition) AND ((split_part(o.outbox_id, '/'::text, 3))::bigint = s.end_offset))))
     JOIN outbox.batch b ON ((b.batch_id = s.batch_id)))
     JOIN outbox.generation g ON ((g.generation = s.generation)));

--
-- Name: VIEW output_lineage; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON VIEW outbox.output_lineage IS 'Where each output came from and where it went: one row per output event, from its input records to its place in Kafka. Ask by session_key, or by batch_id.';

--
-- Name: COLUMN output_lineage.input_topic; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.input_topic IS 'input topic; NULL: no generation names it';

--
-- Name: COLUMN output_lineage.input_topic_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.input_topic_id IS 'id of the input topic';

--
-- Name: COLUMN output_lineage.input_partition; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.input_partition IS 'partition of the input topic';

--
-- Name: COLUMN output_lineage.first_offset; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.first_offset IS 'offset of the session''s first event; other sessions'' events may lie between it and the last one';

--
-- Name: COLUMN output_lineage.last_offset; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.last_offset IS 'offset of the session''s last event';

--
-- Name: COLUMN output_lineage.input_events; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.input_events IS 'events of the session';

--
-- Name: COLUMN output_lineage.session_key; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.session_key IS 'key of the session''s events';

--
-- Name: COLUMN output_lineage.started_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.started_at IS 'time of the session''s first event';

--
-- Name: COLUMN output_lineage.ended_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.ended_at IS 'time of the session''s last event';

--
-- Name: COLUMN output_lineage.batch_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.batch_id IS 'number of the ledger row (outbox.batch) that it was committed with';

--
-- Name: COLUMN output_lineage.batch_kind; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.batch_kind IS 'stream, retry (of a dead letter) or requeue (of a parked row)';

--
-- Name: COLUMN output_lineage.generation; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.generation IS 'generation (outbox.generation) that the batch belongs to';

--
-- Name: COLUMN output_lineage.run_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.run_id IS 'run (outbox.run) that committed the batch';

--
-- Name: COLUMN output_lineage.transform_fingerprint; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.transform_fingerprint IS 'fingerprint of the transform''s code in that batch';

--
-- Name: COLUMN output_lineage.assembly; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.assembly IS 'settings by which the generation assembles sessions';

--
-- Name: COLUMN output_lineage.committed_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.committed_at IS 'when the batch was committed to the outbox';

--
-- Name: COLUMN output_lineage.outbox_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.outbox_id IS 'header outbox-id: <input topic id>/<partition>/<offset of the session''s last event>/<index>';

--
-- Name: COLUMN output_lineage.revision; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.revision IS '0; more after a restore with policy reissue, as the header outbox-revision says';

--
-- Name: COLUMN output_lineage.epoch; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.epoch IS 'lane epoch of the batch';

--
-- Name: COLUMN output_lineage.lane; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.lane IS 'lane that sends the row';

--
-- Name: COLUMN output_lineage.delivery_seq; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.delivery_seq IS 'transaction of the lane (outbox.delivery) that sent it first; NULL: not sent, or that record is kept no more';

--
-- Name: COLUMN output_lineage.state; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.state IS 'delivered, pending, parked, requeued, discarded or skipped, as in audit_session';

--
-- Name: COLUMN output_lineage.delivered_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.delivered_at IS 'when that transaction was recorded';

--
-- Name: COLUMN output_lineage.topic; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.topic IS 'output topic';

--
-- Name: COLUMN output_lineage.kafka_offsets; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.output_lineage.kafka_offsets IS '{partition: [first, last offset]} of that transaction in the output topic; with one partition named, that is the event''s. NULL: not known';

--
-- Name: parked_topic; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.parked_topic (
    topic text NOT NULL,
    decided_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT parked_topic_named CHECK ((topic <> ''::text))
);

--
-- Name: TABLE parked_topic; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON TABLE outbox.parked_topic IS 'Output topics whose rows are parked while the topic does not exist, by a person''s decision (publisher parked park).';

--
-- Name: COLUMN parked_topic.topic; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.parked_topic.topic IS 'name of the output topic';

--
-- Name: COLUMN parked_topic.decided_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.parked_topic.decided_at IS 'since when';

--
-- Name: COLUMN parked_topic.ended_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.parked_topic.ended_at IS 'when the decision was taken back; NULL: it stands';

--
-- Name: removed_letters; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.removed_letters (
    reason text NOT NULL,
    state text NOT NULL,
    letters bigint NOT NULL,
    events bigint NOT NULL,
    newest_id bigint NOT NULL,
    newest_at timestamp with time zone NOT NULL,
    removed_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT removed_letters_natural CHECK ((LEAST(letters, events, newest_id) > 0))
);

--
-- Name: TABLE removed_letters; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON TABLE outbox.removed_letters IS 'Dead letters that retention has removed, counted by reason and by the state in which they were.';

--
-- Name: COLUMN removed_letters.reason; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.removed_letters.reason IS 'their reason';

--
-- Name: COLUMN removed_letters.state; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.removed_letters.state IS 'their state when they were removed';

--
-- Name: COLUMN removed_letters.letters; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.removed_letters.letters IS 'how many';

--
-- Name: COLUMN removed_letters.events; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.removed_letters.events IS 'events of theirs, those that were not kept included';

--
-- Name: COLUMN removed_letters.newest_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.removed_letters.newest_id IS 'the greatest number among them';

--
-- Name: COLUMN removed_letters.newest_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.removed_letters.newest_at IS 'when the newest of them was committed';

--
-- Name: COLUMN removed_letters.removed_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.removed_letters.removed_at IS 'when the last of them was removed';

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
-- Name: retention; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.retention (
    singleton boolean DEFAULT true NOT NULL,
    ended_at timestamp with time zone,
    failed text,
    CONSTRAINT retention_one_row CHECK (singleton)
);

--
-- Name: TABLE retention; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON TABLE outbox.retention IS 'How the newest run of `publisher retention` ended.';

--
-- Name: COLUMN retention.singleton; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.retention.singleton IS 'there is one row';

--
-- Name: COLUMN retention.ended_at; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.retention.ended_at IS 'when; NULL: none has run since schema 0009';

--
-- Name: COLUMN retention.failed; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.retention.failed IS 'why it could not end in order; NULL: it did';

--
-- Name: run; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.run (
    run_id uuid NOT NULL,
    number bigint NOT NULL,
    generation integer NOT NULL,
    restored text NOT NULL,
    resumes_at jsonb NOT NULL,
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
    rebuild_offsets bigint DEFAULT 0 NOT NULL,
    max_events bigint,
    CONSTRAINT run_ended_whole CHECK ((num_nulls(ended_at, ended_because) = ANY (ARRAY[0, 2]))),
    CONSTRAINT run_natural CHECK (((rebuild_offsets >= 0) AND (attempt > 0) AND (max_events > 0))),
    CONSTRAINT run_objects CHECK ((jsonb_typeof(resumes_at) = 'object'::text)),
    CONSTRAINT run_restored_known CHECK ((restored = ANY (ARRAY['fresh'::text, 'unused_generation'::text, 'checkpoint'::text, 'savepoint'::text, 'new_generation'::text, 'position'::text])))
);

--
-- Name: COLUMN run.rebuild_offsets; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.run.rebuild_offsets IS 'offsets between safe and end, at the most, that are read again to find open sessions';

--
-- Name: COLUMN run.max_events; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.run.max_events IS 'events that a batch of this run may have; NULL: started before 0005';

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
    end_offsets jsonb NOT NULL,
    open_state jsonb NOT NULL,
    lineage jsonb NOT NULL,
    assembly jsonb NOT NULL,
    topics jsonb NOT NULL,
    revision integer NOT NULL,
    CONSTRAINT savepoint_lineage_array CHECK ((jsonb_typeof(lineage) = 'array'::text)),
    CONSTRAINT savepoint_name_form CHECK ((name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'::text)),
    CONSTRAINT savepoint_objects CHECK (((jsonb_typeof(end_offsets) = 'object'::text) AND (jsonb_typeof(open_state) = 'object'::text) AND (jsonb_typeof(assembly) = 'object'::text) AND (jsonb_typeof(topics) = 'object'::text))),
    CONSTRAINT savepoint_revision_natural CHECK ((revision >= 0))
);
ALTER TABLE ONLY outbox.savepoint ALTER COLUMN open_state SET STATISTICS 0;

--
-- Name: COLUMN savepoint.generation; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.savepoint.generation IS 'where it was made, to show; its position is in end_offsets and open_state';

--
-- Name: COLUMN savepoint.batch_id; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.savepoint.batch_id IS 'the batch it was made after, to show; retention may have pruned it. NULL: at the start of its generation';

--
-- Name: COLUMN savepoint.end_offsets; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.savepoint.end_offsets IS 'how far the input was read, exclusive: {topic id: {partition: offset}}';

--
-- Name: COLUMN savepoint.open_state; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.savepoint.open_state IS 'what was open there, as in outbox.batch';

--
-- Name: COLUMN savepoint.lineage; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.savepoint.lineage IS 'the assembly descriptions that judged what was open there, `assembly` included, as in outbox.generation';

--
-- Name: COLUMN savepoint.assembly; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.savepoint.assembly IS 'the assembly description then';

--
-- Name: COLUMN savepoint.topics; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.savepoint.topics IS 'the input then: {topic id: topic}';

--
-- Name: COLUMN savepoint.revision; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.savepoint.revision IS 'outbox-revision then';

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
ALTER TABLE ONLY outbox.session_output_p00000000 ALTER COLUMN "values" SET STATISTICS 0;
ALTER TABLE ONLY outbox.session_output_p00000000 ALTER COLUMN keys SET STATISTICS 0;
ALTER TABLE ONLY outbox.session_output_p00000000 ALTER COLUMN headers SET STATISTICS 0;

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
ALTER TABLE ONLY outbox.session_output_p00000001 ALTER COLUMN "values" SET STATISTICS 0;
ALTER TABLE ONLY outbox.session_output_p00000001 ALTER COLUMN keys SET STATISTICS 0;
ALTER TABLE ONLY outbox.session_output_p00000001 ALTER COLUMN headers SET STATISTICS 0;

--
-- Name: writer_lock; Type: TABLE; Schema: outbox; Owner: -
--

CREATE TABLE outbox.writer_lock (
    singleton boolean DEFAULT true NOT NULL,
    CONSTRAINT writer_lock_one_row CHECK (singleton)
);

--
-- Name: TABLE writer_lock; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON TABLE outbox.writer_lock IS 'One row, whose row lock is the writer lock. Apart from outbox.writer, so that the owner''s heartbeat never waits for a batch.';

--
-- Name: COLUMN writer_lock.singleton; Type: COMMENT; Schema: outbox; Owner: -
--

COMMENT ON COLUMN outbox.writer_lock.singleton IS 'always true: there is one row';

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
-- Name: archived archived_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.archived
    ADD CONSTRAINT archived_pkey PRIMARY KEY (partition_name);

--
-- Name: batch batch_open_state_known; Type: CHECK CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE outbox.batch
    ADD CONSTRAINT batch_open_state_known CHECK (((kind <> 'stream'::text) OR (open_state IS NOT NULL))) NOT VALID;

--
-- Name: batch batch_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.batch
    ADD CONSTRAINT batch_pkey PRIMARY KEY (batch_id);

--
-- Name: batch batch_spark_batch_key; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.batch
    ADD CONSTRAINT batch_spark_batch_key UNIQUE (run_id, spark_batch, part);

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
-- Name: erased_key erased_key_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.erased_key
    ADD CONSTRAINT erased_key_pkey PRIMARY KEY (key_hash, topic_id, partition, generation);

--
-- Name: erased erased_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.erased
    ADD CONSTRAINT erased_pkey PRIMARY KEY (erased_id);

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
-- Name: operation operation_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.operation
    ADD CONSTRAINT operation_pkey PRIMARY KEY (operation_id);

--
-- Name: parked parked_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.parked
    ADD CONSTRAINT parked_pkey PRIMARY KEY (session_key, batch_id);

--
-- Name: parked_topic parked_topic_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.parked_topic
    ADD CONSTRAINT parked_topic_pkey PRIMARY KEY (topic);

--
-- Name: publisher_process publisher_process_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.publisher_process
    ADD CONSTRAINT publisher_process_pkey PRIMARY KEY (process_id);

--
-- Name: removed_letters removed_letters_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.removed_letters
    ADD CONSTRAINT removed_letters_pkey PRIMARY KEY (reason, state);

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
-- Name: retention retention_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.retention
    ADD CONSTRAINT retention_pkey PRIMARY KEY (singleton);

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
-- Name: writer_lock writer_lock_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.writer_lock
    ADD CONSTRAINT writer_lock_pkey PRIMARY KEY (singleton);

--
-- Name: writer writer_pkey; Type: CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.writer
    ADD CONSTRAINT writer_pkey PRIMARY KEY (singleton);

--
-- Name: archived_batch_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX archived_batch_idx ON outbox.archived USING btree (from_batch);

--
-- Name: batch_created_at_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX batch_created_at_idx ON outbox.batch USING btree (created_at);

--
-- Name: batch_stream_position_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX batch_stream_position_idx ON outbox.batch USING btree (generation, batch_id) WHERE (kind = 'stream'::text);

--
-- Name: dead_letter_open_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX dead_letter_open_idx ON outbox.dead_letter USING btree (reason, created_at) WHERE (state = 'open'::text);

--
-- Name: dead_letter_place_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX dead_letter_place_idx ON outbox.dead_letter USING btree (session_key, topic_id, partition, first_offset);

--
-- Name: dead_letter_reading_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX dead_letter_reading_idx ON outbox.dead_letter USING btree (session_key, topic_id, partition, generation, first_offset) WHERE (reason <> 'malformed'::text);

--
-- Name: delivery_batches_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX delivery_batches_idx ON outbox.delivery USING gist (int8range(LEAST(after_batch, to_batch), to_batch, '[]'::text));

--
-- Name: delivery_committed_at_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX delivery_committed_at_idx ON outbox.delivery USING btree (committed_at);

--
-- Name: erased_batch_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX erased_batch_idx ON outbox.erased USING btree (batch_id);

--
-- Name: erased_delivery_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX erased_delivery_idx ON outbox.erased USING btree (epoch, lane, batch_id);

--
-- Name: erased_key_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX erased_key_idx ON outbox.erased USING btree (key_hash);

--
-- Name: erased_key_place_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX erased_key_place_idx ON outbox.erased_key USING btree (topic_id, partition, through);

--
-- Name: parked_batch_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX parked_batch_idx ON outbox.parked USING btree (batch_id, session_key);

--
-- Name: parked_lane_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX parked_lane_idx ON outbox.parked USING btree (epoch, lane, batch_id, session_key);

--
-- Name: parked_open_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX parked_open_idx ON outbox.parked USING btree (batch_id, session_key) WHERE (state = 'parked'::text);

--
-- Name: parked_state_idx; Type: INDEX; Schema: outbox; Owner: -
--

CREATE INDEX parked_state_idx ON outbox.parked USING btree (state, reason);

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
-- Name: dead_letter dead_letter_date_state; Type: TRIGGER; Schema: outbox; Owner: -
--

CREATE TRIGGER dead_letter_date_state BEFORE UPDATE OF state, state_changed_at ON outbox.dead_letter FOR EACH ROW EXECUTE FUNCTION outbox.date_state();

--
-- Name: erased erased_remember; Type: TRIGGER; Schema: outbox; Owner: -
--

CREATE TRIGGER erased_remember AFTER INSERT ON outbox.erased REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION outbox.remember_erased();

--
-- Name: identity identity_rebound; Type: TRIGGER; Schema: outbox; Owner: -
--

CREATE TRIGGER identity_rebound AFTER UPDATE ON outbox.identity FOR EACH ROW EXECUTE FUNCTION outbox.log_rebinding();

--
-- Name: replay replay_date_state; Type: TRIGGER; Schema: outbox; Owner: -
--

CREATE TRIGGER replay_date_state BEFORE UPDATE OF state, state_changed_at ON outbox.replay FOR EACH ROW EXECUTE FUNCTION outbox.date_state();

--
-- Name: batch batch_generation_fkey; Type: FK CONSTRAINT; Schema: outbox; Owner: -
--

ALTER TABLE ONLY outbox.batch
    ADD CONSTRAINT batch_generation_fkey FOREIGN KEY (generation) REFERENCES outbox.generation(generation);

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
GRANT USAGE ON SCHEMA outbox TO outbox_retention;
GRANT USAGE ON SCHEMA outbox TO outbox_eraser;

--
-- Name: FUNCTION archive_leases(partition_name text); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.archive_leases(partition_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.archive_leases(partition_name text) TO outbox_eraser;

--
-- Name: FUNCTION total("values" integer[]); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.total("values" integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.total("values" integer[]) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.total("values" integer[]) TO outbox_publisher;
GRANT ALL ON FUNCTION outbox.total("values" integer[]) TO outbox_auditor;

--
-- Name: TABLE lane_epoch; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.lane_epoch TO outbox_writer;
GRANT SELECT ON TABLE outbox.lane_epoch TO outbox_publisher;
GRANT SELECT ON TABLE outbox.lane_epoch TO outbox_auditor;

--
-- Name: COLUMN lane_epoch.lanes; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(lanes) ON TABLE outbox.lane_epoch TO outbox_retention;

--
-- Name: TABLE session_output; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT,INSERT ON TABLE outbox.session_output TO outbox_writer;
GRANT SELECT ON TABLE outbox.session_output TO outbox_publisher;
GRANT SELECT ON TABLE outbox.session_output TO outbox_auditor;

--
-- Name: FUNCTION batch_rows(from_batch bigint, to_batch bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.batch_rows(from_batch bigint, to_batch bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.batch_rows(from_batch bigint, to_batch bigint) TO outbox_publisher;
GRANT ALL ON FUNCTION outbox.batch_rows(from_batch bigint, to_batch bigint) TO outbox_auditor;

--
-- Name: TABLE batch; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.batch TO outbox_writer;
GRANT SELECT ON TABLE outbox.batch TO outbox_publisher;
GRANT SELECT ON TABLE outbox.batch TO outbox_auditor;

--
-- Name: COLUMN batch.batch_id; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(batch_id) ON TABLE outbox.batch TO outbox_retention;
GRANT INSERT(batch_id) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: COLUMN batch.kind; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(kind) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: COLUMN batch.generation; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(generation) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: COLUMN batch.spark_batch; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(spark_batch) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: COLUMN batch.part; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(part) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: COLUMN batch.commit_id; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(commit_id) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: COLUMN batch.run_id; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(run_id) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: COLUMN batch.start_offsets; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(start_offsets) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: COLUMN batch.end_offsets; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(end_offsets) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: COLUMN batch.input_events; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(input_events) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: COLUMN batch.sessions; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(sessions) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: COLUMN batch.output_events; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(output_events) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: COLUMN batch.dead_letters; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(dead_letters) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: COLUMN batch.duplicate_events; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(duplicate_events) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: COLUMN batch.transform_fingerprint; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(transform_fingerprint) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: COLUMN batch.created_at; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(created_at) ON TABLE outbox.batch TO outbox_retention;

--
-- Name: COLUMN batch.output_bytes; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(output_bytes) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: COLUMN batch.open_state; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(open_state) ON TABLE outbox.batch TO outbox_writer;

--
-- Name: TABLE erased; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.erased TO outbox_writer;
GRANT SELECT ON TABLE outbox.erased TO outbox_publisher;
GRANT SELECT ON TABLE outbox.erased TO outbox_auditor;

--
-- Name: TABLE output_partition; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.output_partition TO outbox_publisher;
GRANT SELECT ON TABLE outbox.output_partition TO outbox_auditor;
GRANT SELECT ON TABLE outbox.output_partition TO outbox_writer;
GRANT SELECT ON TABLE outbox.output_partition TO outbox_retention;
GRANT SELECT ON TABLE outbox.output_partition TO outbox_eraser;

--
-- Name: FUNCTION check_batch_counts(from_batch bigint, to_batch bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.check_batch_counts(from_batch bigint, to_batch bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.check_batch_counts(from_batch bigint, to_batch bigint) TO outbox_publisher;
GRANT ALL ON FUNCTION outbox.check_batch_counts(from_batch bigint, to_batch bigint) TO outbox_auditor;

--
-- Name: FUNCTION cursor_covers(after_batch bigint, after_key text, to_batch bigint, to_key text, batch_id bigint, session_key text); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.cursor_covers(after_batch bigint, after_key text, to_batch bigint, to_key text, batch_id bigint, session_key text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.cursor_covers(after_batch bigint, after_key text, to_batch bigint, to_key text, batch_id bigint, session_key text) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.cursor_covers(after_batch bigint, after_key text, to_batch bigint, to_key text, batch_id bigint, session_key text) TO outbox_publisher;
GRANT ALL ON FUNCTION outbox.cursor_covers(after_batch bigint, after_key text, to_batch bigint, to_key text, batch_id bigint, session_key text) TO outbox_auditor;

--
-- Name: TABLE delivery; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.delivery TO outbox_publisher;
GRANT SELECT ON TABLE outbox.delivery TO outbox_auditor;

--
-- Name: COLUMN delivery.epoch; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(epoch) ON TABLE outbox.delivery TO outbox_publisher;

--
-- Name: COLUMN delivery.lane; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(lane) ON TABLE outbox.delivery TO outbox_publisher;

--
-- Name: COLUMN delivery.seq; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(seq) ON TABLE outbox.delivery TO outbox_publisher;

--
-- Name: COLUMN delivery.after_batch; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(after_batch) ON TABLE outbox.delivery TO outbox_publisher;

--
-- Name: COLUMN delivery.after_key; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(after_key) ON TABLE outbox.delivery TO outbox_publisher;

--
-- Name: COLUMN delivery.to_batch; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(to_batch) ON TABLE outbox.delivery TO outbox_publisher;

--
-- Name: COLUMN delivery.to_key; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(to_key) ON TABLE outbox.delivery TO outbox_publisher;

--
-- Name: COLUMN delivery.sessions; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(sessions) ON TABLE outbox.delivery TO outbox_publisher;

--
-- Name: COLUMN delivery.events; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(events) ON TABLE outbox.delivery TO outbox_publisher;

--
-- Name: COLUMN delivery.kafka_offsets; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(kafka_offsets) ON TABLE outbox.delivery TO outbox_publisher;

--
-- Name: COLUMN delivery.kind; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(kind) ON TABLE outbox.delivery TO outbox_publisher;

--
-- Name: COLUMN delivery.note; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(note) ON TABLE outbox.delivery TO outbox_publisher;

--
-- Name: TABLE parked; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.parked TO outbox_writer;
GRANT SELECT ON TABLE outbox.parked TO outbox_publisher;
GRANT SELECT ON TABLE outbox.parked TO outbox_auditor;

--
-- Name: COLUMN parked.session_key; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(session_key) ON TABLE outbox.parked TO outbox_publisher;

--
-- Name: COLUMN parked.batch_id; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(batch_id) ON TABLE outbox.parked TO outbox_retention;
GRANT INSERT(batch_id) ON TABLE outbox.parked TO outbox_publisher;

--
-- Name: COLUMN parked.epoch; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(epoch) ON TABLE outbox.parked TO outbox_publisher;

--
-- Name: COLUMN parked.lane; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(lane) ON TABLE outbox.parked TO outbox_publisher;

--
-- Name: COLUMN parked.lease_token; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(lease_token) ON TABLE outbox.parked TO outbox_publisher;

--
-- Name: COLUMN parked.reason; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(reason) ON TABLE outbox.parked TO outbox_publisher;

--
-- Name: COLUMN parked.detail; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(detail) ON TABLE outbox.parked TO outbox_publisher;

--
-- Name: COLUMN parked.state; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(state) ON TABLE outbox.parked TO outbox_retention;

--
-- Name: COLUMN parked.after_seq; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(after_seq) ON TABLE outbox.parked TO outbox_publisher;

--
-- Name: TABLE check_delivery_counts; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.check_delivery_counts TO outbox_publisher;
GRANT SELECT ON TABLE outbox.check_delivery_counts TO outbox_auditor;

--
-- Name: FUNCTION check_delivery_counts(from_batch bigint, to_batch bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.check_delivery_counts(from_batch bigint, to_batch bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.check_delivery_counts(from_batch bigint, to_batch bigint) TO outbox_publisher;
GRANT ALL ON FUNCTION outbox.check_delivery_counts(from_batch bigint, to_batch bigint) TO outbox_auditor;

--
-- Name: FUNCTION check_emitted_twice(from_batch bigint, to_batch bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.check_emitted_twice(from_batch bigint, to_batch bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.check_emitted_twice(from_batch bigint, to_batch bigint) TO outbox_publisher;
GRANT ALL ON FUNCTION outbox.check_emitted_twice(from_batch bigint, to_batch bigint) TO outbox_auditor;

--
-- Name: TABLE check_parked; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.check_parked TO outbox_publisher;
GRANT SELECT ON TABLE outbox.check_parked TO outbox_auditor;

--
-- Name: FUNCTION check_parked_rows(from_batch bigint, to_batch bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.check_parked_rows(from_batch bigint, to_batch bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.check_parked_rows(from_batch bigint, to_batch bigint) TO outbox_publisher;
GRANT ALL ON FUNCTION outbox.check_parked_rows(from_batch bigint, to_batch bigint) TO outbox_auditor;

--
-- Name: TABLE epoch_range; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.epoch_range TO outbox_writer;
GRANT SELECT ON TABLE outbox.epoch_range TO outbox_publisher;
GRANT SELECT ON TABLE outbox.epoch_range TO outbox_auditor;

--
-- Name: TABLE check_stray_row; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.check_stray_row TO outbox_publisher;
GRANT SELECT ON TABLE outbox.check_stray_row TO outbox_auditor;

--
-- Name: FUNCTION check_stray_rows(from_batch bigint, to_batch bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.check_stray_rows(from_batch bigint, to_batch bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.check_stray_rows(from_batch bigint, to_batch bigint) TO outbox_publisher;
GRANT ALL ON FUNCTION outbox.check_stray_rows(from_batch bigint, to_batch bigint) TO outbox_auditor;

--
-- Name: FUNCTION cursor_text(batch_id bigint, session_key text); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.cursor_text(batch_id bigint, session_key text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.cursor_text(batch_id bigint, session_key text) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.cursor_text(batch_id bigint, session_key text) TO outbox_publisher;
GRANT ALL ON FUNCTION outbox.cursor_text(batch_id bigint, session_key text) TO outbox_auditor;

--
-- Name: TABLE generation; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT,INSERT ON TABLE outbox.generation TO outbox_writer;
GRANT SELECT ON TABLE outbox.generation TO outbox_publisher;
GRANT SELECT ON TABLE outbox.generation TO outbox_auditor;

--
-- Name: TABLE audit_ledger; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_ledger TO outbox_publisher;
GRANT SELECT ON TABLE outbox.audit_ledger TO outbox_auditor;

--
-- Name: TABLE lane; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.lane TO outbox_writer;
GRANT SELECT ON TABLE outbox.lane TO outbox_publisher;
GRANT SELECT ON TABLE outbox.lane TO outbox_auditor;

--
-- Name: COLUMN lane.epoch; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(epoch) ON TABLE outbox.lane TO outbox_retention;
GRANT INSERT(epoch) ON TABLE outbox.lane TO outbox_publisher;

--
-- Name: COLUMN lane.lane; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(lane) ON TABLE outbox.lane TO outbox_retention;
GRANT INSERT(lane) ON TABLE outbox.lane TO outbox_publisher;

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
-- Name: COLUMN lane.taken; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(taken) ON TABLE outbox.lane TO outbox_publisher;

--
-- Name: TABLE check_delivery_chain; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.check_delivery_chain TO outbox_publisher;
GRANT SELECT ON TABLE outbox.check_delivery_chain TO outbox_auditor;

--
-- Name: TABLE check_mirror; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.check_mirror TO outbox_publisher;
GRANT SELECT ON TABLE outbox.check_mirror TO outbox_auditor;

--
-- Name: TABLE lane_position; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.lane_position TO outbox_writer;
GRANT SELECT ON TABLE outbox.lane_position TO outbox_publisher;
GRANT SELECT ON TABLE outbox.lane_position TO outbox_auditor;

--
-- Name: COLUMN lane_position.epoch; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(epoch) ON TABLE outbox.lane_position TO outbox_retention;

--
-- Name: COLUMN lane_position.lane; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(lane) ON TABLE outbox.lane_position TO outbox_retention;

--
-- Name: COLUMN lane_position.from_batch; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(from_batch) ON TABLE outbox.lane_position TO outbox_retention;

--
-- Name: COLUMN lane_position.to_batch; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(to_batch) ON TABLE outbox.lane_position TO outbox_retention;

--
-- Name: COLUMN lane_position.through_batch; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(through_batch) ON TABLE outbox.lane_position TO outbox_retention;

--
-- Name: COLUMN lane_position.lease_holder; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(lease_holder) ON TABLE outbox.lane_position TO outbox_retention;

--
-- Name: COLUMN lane_position.stopped_reason; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(stopped_reason) ON TABLE outbox.lane_position TO outbox_retention;

--
-- Name: COLUMN lane_position.stopped_why; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(stopped_why) ON TABLE outbox.lane_position TO outbox_retention;

--
-- Name: TABLE check_rows_kept; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.check_rows_kept TO outbox_publisher;
GRANT SELECT ON TABLE outbox.check_rows_kept TO outbox_auditor;

--
-- Name: FUNCTION audit_reconcile(from_batch bigint, to_batch bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.audit_reconcile(from_batch bigint, to_batch bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.audit_reconcile(from_batch bigint, to_batch bigint) TO outbox_auditor;

--
-- Name: FUNCTION begin_erasure(session_keys text[]); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.begin_erasure(session_keys text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.begin_erasure(session_keys text[]) TO outbox_eraser;

--
-- Name: FUNCTION change_lanes(new_lanes integer, OUT epoch integer, OUT from_batch bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.change_lanes(new_lanes integer, OUT epoch integer, OUT from_batch bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.change_lanes(new_lanes integer, OUT epoch integer, OUT from_batch bigint) TO outbox_publisher;

--
-- Name: FUNCTION date_state(); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.date_state() FROM PUBLIC;

--
-- Name: FUNCTION discard_parked(last_batch bigint, reasons text[], batch_ids bigint[], session_keys text[]); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.discard_parked(last_batch bigint, reasons text[], batch_ids bigint[], session_keys text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.discard_parked(last_batch bigint, reasons text[], batch_ids bigint[], session_keys text[]) TO outbox_publisher;

--
-- Name: FUNCTION drop_archived(partition_name text, archive_id uuid, manifest_sha256 bytea, row_count bigint, sessions bigint, outputs bigint, output_bytes bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.drop_archived(partition_name text, archive_id uuid, manifest_sha256 bytea, row_count bigint, sessions bigint, outputs bigint, output_bytes bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.drop_archived(partition_name text, archive_id uuid, manifest_sha256 bytea, row_count bigint, sessions bigint, outputs bigint, output_bytes bigint) TO outbox_retention;

--
-- Name: FUNCTION drop_partition(partition_name text); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.drop_partition(partition_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.drop_partition(partition_name text) TO outbox_retention;

--
-- Name: FUNCTION end_retention(failure text); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.end_retention(failure text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.end_retention(failure text) TO outbox_retention;

--
-- Name: FUNCTION ensure_partitions(first_batch bigint, last_batch bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.ensure_partitions(first_batch bigint, last_batch bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.ensure_partitions(first_batch bigint, last_batch bigint) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.ensure_partitions(first_batch bigint, last_batch bigint) TO outbox_retention;

--
-- Name: FUNCTION erase_letter_at(topic text, partition integer, first_offset bigint, OUT erased bigint, OUT still_open bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.erase_letter_at(topic text, partition integer, first_offset bigint, OUT erased bigint, OUT still_open bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.erase_letter_at(topic text, partition integer, first_offset bigint, OUT erased bigint, OUT still_open bigint) TO outbox_eraser;

--
-- Name: FUNCTION erase_letters(letter_ids bigint[]); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.erase_letters(letter_ids bigint[]) FROM PUBLIC;

--
-- Name: FUNCTION erase_letters_of_key(session_key text, most integer); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.erase_letters_of_key(session_key text, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.erase_letters_of_key(session_key text, most integer) TO outbox_eraser;

--
-- Name: FUNCTION erase_parked(session_key text, batch_ids bigint[]); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.erase_parked(session_key text, batch_ids bigint[]) FROM PUBLIC;

--
-- Name: FUNCTION erase_positions(session_key text, relation text, after_id bigint, most integer, OUT changed bigint, OUT kept text[], OUT last_id bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.erase_positions(session_key text, relation text, after_id bigint, most integer, OUT changed bigint, OUT kept text[], OUT last_id bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.erase_positions(session_key text, relation text, after_id bigint, most integer, OUT changed bigint, OUT kept text[], OUT last_id bigint) TO outbox_eraser;

--
-- Name: FUNCTION erase_rows(session_key text, batch_ids bigint[]); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.erase_rows(session_key text, batch_ids bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.erase_rows(session_key text, batch_ids bigint[]) TO outbox_eraser;

--
-- Name: FUNCTION erase_statistics(partition_name name); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.erase_statistics(partition_name name) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.erase_statistics(partition_name name) TO outbox_eraser;

--
-- Name: FUNCTION erase_traces(session_key text, after_batch bigint, after_generation bigint, after_savepoint bigint, OUT changed bigint, OUT kept text[]); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.erase_traces(session_key text, after_batch bigint, after_generation bigint, after_savepoint bigint, OUT changed bigint, OUT kept text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.erase_traces(session_key text, after_batch bigint, after_generation bigint, after_savepoint bigint, OUT changed bigint, OUT kept text[]) TO outbox_eraser;

--
-- Name: FUNCTION first_lane_epoch(lanes integer); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.first_lane_epoch(lanes integer) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.first_lane_epoch(lanes integer) TO outbox_writer;

--
-- Name: FUNCTION hold_for_erasure(); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.hold_for_erasure() FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.hold_for_erasure() TO outbox_eraser;

--
-- Name: FUNCTION hold_partition(partition_name text, OUT row_count bigint, OUT sessions bigint, OUT outputs bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.hold_partition(partition_name text, OUT row_count bigint, OUT sessions bigint, OUT outputs bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.hold_partition(partition_name text, OUT row_count bigint, OUT sessions bigint, OUT outputs bigint) TO outbox_retention;

--
-- Name: FUNCTION integer_at(data bytea, place integer); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.integer_at(data bytea, place integer) FROM PUBLIC;

--
-- Name: TABLE identity; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.identity TO outbox_writer;
GRANT SELECT ON TABLE outbox.identity TO outbox_publisher;
GRANT SELECT ON TABLE outbox.identity TO outbox_auditor;
GRANT SELECT ON TABLE outbox.identity TO outbox_eraser;

--
-- Name: COLUMN identity.outbox_uuid; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(outbox_uuid) ON TABLE outbox.identity TO outbox_retention;

--
-- Name: COLUMN identity.system_identifier; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(system_identifier) ON TABLE outbox.identity TO outbox_publisher;
GRANT SELECT(system_identifier) ON TABLE outbox.identity TO outbox_retention;

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
-- Name: FUNCTION key_hash(session_key text); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.key_hash(session_key text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.key_hash(session_key text) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.key_hash(session_key text) TO outbox_publisher;
GRANT ALL ON FUNCTION outbox.key_hash(session_key text) TO outbox_auditor;
GRANT ALL ON FUNCTION outbox.key_hash(session_key text) TO outbox_eraser;

--
-- Name: FUNCTION letters_kept(keep_s double precision, OUT closed bigint, OUT open bigint, OUT bytes bigint, OUT old_closed bigint, OUT old_open bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.letters_kept(keep_s double precision, OUT closed bigint, OUT open bigint, OUT bytes bigint, OUT old_closed bigint, OUT old_open bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.letters_kept(keep_s double precision, OUT closed bigint, OUT open bigint, OUT bytes bigint, OUT old_closed bigint, OUT old_open bigint) TO outbox_retention;
GRANT ALL ON FUNCTION outbox.letters_kept(keep_s double precision, OUT closed bigint, OUT open bigint, OUT bytes bigint, OUT old_closed bigint, OUT old_open bigint) TO outbox_auditor;

--
-- Name: FUNCTION letters_of_key(session_key text, OUT letters bigint, OUT without_key bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.letters_of_key(session_key text, OUT letters bigint, OUT without_key bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.letters_of_key(session_key text, OUT letters bigint, OUT without_key bigint) TO outbox_eraser;

--
-- Name: FUNCTION lock_writer(); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.lock_writer() FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.lock_writer() TO outbox_writer;

--
-- Name: FUNCTION log_rebinding(); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.log_rebinding() FROM PUBLIC;

--
-- Name: FUNCTION open_at_upgrade(first_batch bigint, last_batch bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.open_at_upgrade(first_batch bigint, last_batch bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.open_at_upgrade(first_batch bigint, last_batch bigint) TO outbox_retention;
GRANT ALL ON FUNCTION outbox.open_at_upgrade(first_batch bigint, last_batch bigint) TO outbox_publisher;
GRANT ALL ON FUNCTION outbox.open_at_upgrade(first_batch bigint, last_batch bigint) TO outbox_auditor;

--
-- Name: FUNCTION open_input(OUT topic_id text, OUT partition integer, OUT end_offset bigint, OUT open_from bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.open_input(OUT topic_id text, OUT partition integer, OUT end_offset bigint, OUT open_from bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.open_input(OUT topic_id text, OUT partition integer, OUT end_offset bigint, OUT open_from bigint) TO outbox_eraser;

--
-- Name: FUNCTION partitions_of_erased(session_keys text[]); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.partitions_of_erased(session_keys text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.partitions_of_erased(session_keys text[]) TO outbox_eraser;

--
-- Name: FUNCTION prune_batches(keep_s double precision, after_batch bigint, max_rows integer, OUT pruned bigint, OUT last_batch bigint, OUT more boolean); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.prune_batches(keep_s double precision, after_batch bigint, max_rows integer, OUT pruned bigint, OUT last_batch bigint, OUT more boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.prune_batches(keep_s double precision, after_batch bigint, max_rows integer, OUT pruned bigint, OUT last_batch bigint, OUT more boolean) TO outbox_retention;

--
-- Name: FUNCTION prune_deliveries(of_epoch integer, of_lane integer, keep_s double precision, max_rows integer, OUT pruned bigint, OUT more boolean); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.prune_deliveries(of_epoch integer, of_lane integer, keep_s double precision, max_rows integer, OUT pruned bigint, OUT more boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.prune_deliveries(of_epoch integer, of_lane integer, keep_s double precision, max_rows integer, OUT pruned bigint, OUT more boolean) TO outbox_retention;
GRANT ALL ON FUNCTION outbox.prune_deliveries(of_epoch integer, of_lane integer, keep_s double precision, max_rows integer, OUT pruned bigint, OUT more boolean) TO outbox_publisher;

--
-- Name: FUNCTION prune_epochs(keep_s double precision, OUT pruned integer[]); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.prune_epochs(keep_s double precision, OUT pruned integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.prune_epochs(keep_s double precision, OUT pruned integer[]) TO outbox_retention;

--
-- Name: FUNCTION prune_erased(keep_s double precision, max_rows integer); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.prune_erased(keep_s double precision, max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.prune_erased(keep_s double precision, max_rows integer) TO outbox_retention;

--
-- Name: FUNCTION prune_operations(keep_s double precision, max_rows integer, OUT pruned bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.prune_operations(keep_s double precision, max_rows integer, OUT pruned bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.prune_operations(keep_s double precision, max_rows integer, OUT pruned bigint) TO outbox_retention;

--
-- Name: FUNCTION prune_parked(keep_s double precision, max_rows integer, OUT pruned bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.prune_parked(keep_s double precision, max_rows integer, OUT pruned bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.prune_parked(keep_s double precision, max_rows integer, OUT pruned bigint) TO outbox_retention;

--
-- Name: FUNCTION prune_processes(keep_s double precision, max_rows integer, OUT pruned bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.prune_processes(keep_s double precision, max_rows integer, OUT pruned bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.prune_processes(keep_s double precision, max_rows integer, OUT pruned bigint) TO outbox_retention;

--
-- Name: FUNCTION prune_replay_keys(keep_s double precision, max_rows integer, OUT pruned bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.prune_replay_keys(keep_s double precision, max_rows integer, OUT pruned bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.prune_replay_keys(keep_s double precision, max_rows integer, OUT pruned bigint) TO outbox_retention;

--
-- Name: FUNCTION prune_replays(keep_s double precision, max_rows integer, OUT pruned bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.prune_replays(keep_s double precision, max_rows integer, OUT pruned bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.prune_replays(keep_s double precision, max_rows integer, OUT pruned bigint) TO outbox_retention;

--
-- Name: FUNCTION prune_resumes(OUT pruned bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.prune_resumes(OUT pruned bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.prune_resumes(OUT pruned bigint) TO outbox_retention;

--
-- Name: FUNCTION read_ends(OUT topic_id text, OUT partition integer, OUT end_offset bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.read_ends(OUT topic_id text, OUT partition integer, OUT end_offset bigint) FROM PUBLIC;

--
-- Name: FUNCTION record_hash(topic_id text, partition integer, record_offset bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.record_hash(topic_id text, partition integer, record_offset bigint) FROM PUBLIC;

--
-- Name: FUNCTION remember_erased(); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.remember_erased() FROM PUBLIC;

--
-- Name: FUNCTION remembers(remembered bytea, key_bytes bytea); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.remembers(remembered bytea, key_bytes bytea) FROM PUBLIC;

--
-- Name: FUNCTION remove_closed_letters(keep_s double precision, after_id bigint, excess bigint, max_rows integer, OUT removed bigint, OUT freed bigint, OUT last_id bigint, OUT more boolean); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.remove_closed_letters(keep_s double precision, after_id bigint, excess bigint, max_rows integer, OUT removed bigint, OUT freed bigint, OUT last_id bigint, OUT more boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.remove_closed_letters(keep_s double precision, after_id bigint, excess bigint, max_rows integer, OUT removed bigint, OUT freed bigint, OUT last_id bigint, OUT more boolean) TO outbox_retention;

--
-- Name: FUNCTION remove_letters(is_open boolean, keep_s double precision, after_id bigint, excess bigint, max_rows integer, OUT removed bigint, OUT freed bigint, OUT last_id bigint, OUT more boolean); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.remove_letters(is_open boolean, keep_s double precision, after_id bigint, excess bigint, max_rows integer, OUT removed bigint, OUT freed bigint, OUT last_id bigint, OUT more boolean) FROM PUBLIC;

--
-- Name: FUNCTION remove_open_letters(keep_s double precision, after_id bigint, excess bigint, max_rows integer, OUT removed bigint, OUT freed bigint, OUT last_id bigint, OUT more boolean); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.remove_open_letters(keep_s double precision, after_id bigint, excess bigint, max_rows integer, OUT removed bigint, OUT freed bigint, OUT last_id bigint, OUT more boolean) FROM PUBLIC;

--
-- Name: FUNCTION requeue(session_keys text[], batch_ids bigint[], lanes integer[], lane_count integer, run_id uuid); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.requeue(session_keys text[], batch_ids bigint[], lanes integer[], lane_count integer, run_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.requeue(session_keys text[], batch_ids bigint[], lanes integer[], lane_count integer, run_id uuid) TO outbox_publisher;

--
-- Name: FUNCTION require_read_committed(); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.require_read_committed() FROM PUBLIC;

--
-- Name: FUNCTION retention_floor(); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.retention_floor() FROM PUBLIC;

--
-- Name: FUNCTION rewrite_archived(partition_name text, old_manifest bytea, new_manifest bytea, erased jsonb); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.rewrite_archived(partition_name text, old_manifest bytea, new_manifest bytea, erased jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.rewrite_archived(partition_name text, old_manifest bytea, new_manifest bytea, erased jsonb) TO outbox_eraser;

--
-- Name: FUNCTION rows_of_key(session_key text, from_batch bigint, to_batch bigint); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.rows_of_key(session_key text, from_batch bigint, to_batch bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.rows_of_key(session_key text, from_batch bigint, to_batch bigint) TO outbox_eraser;

--
-- Name: FUNCTION server_identity(OUT system_identifier bigint, OUT timeline integer); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.server_identity(OUT system_identifier bigint, OUT timeline integer) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.server_identity(OUT system_identifier bigint, OUT timeline integer) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.server_identity(OUT system_identifier bigint, OUT timeline integer) TO outbox_publisher;
GRANT ALL ON FUNCTION outbox.server_identity(OUT system_identifier bigint, OUT timeline integer) TO outbox_auditor;
GRANT ALL ON FUNCTION outbox.server_identity(OUT system_identifier bigint, OUT timeline integer) TO outbox_retention;
GRANT ALL ON FUNCTION outbox.server_identity(OUT system_identifier bigint, OUT timeline integer) TO outbox_eraser;

--
-- Name: FUNCTION try_json(value bytea); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.try_json(value bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.try_json(value bytea) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.try_json(value bytea) TO outbox_publisher;
GRANT ALL ON FUNCTION outbox.try_json(value bytea) TO outbox_auditor;

--
-- Name: FUNCTION wake(channel text, payload text); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.wake(channel text, payload text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.wake(channel text, payload text) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.wake(channel text, payload text) TO outbox_publisher;

--
-- Name: FUNCTION without_key(open_state jsonb, key_bytes bytea); Type: ACL; Schema: outbox; Owner: -
--

REVOKE ALL ON FUNCTION outbox.without_key(open_state jsonb, key_bytes bytea) FROM PUBLIC;

--
-- Name: TABLE alembic_version; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.alembic_version TO outbox_writer;
GRANT SELECT ON TABLE outbox.alembic_version TO outbox_publisher;
GRANT SELECT ON TABLE outbox.alembic_version TO outbox_auditor;
GRANT SELECT ON TABLE outbox.alembic_version TO outbox_retention;
GRANT SELECT ON TABLE outbox.alembic_version TO outbox_eraser;

--
-- Name: TABLE archived; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.archived TO outbox_publisher;
GRANT SELECT ON TABLE outbox.archived TO outbox_auditor;
GRANT SELECT ON TABLE outbox.archived TO outbox_retention;
GRANT SELECT ON TABLE outbox.archived TO outbox_eraser;

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
-- Name: TABLE audit_dead_letter; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_dead_letter TO outbox_auditor;

--
-- Name: TABLE audit_dead_letter_reason; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_dead_letter_reason TO outbox_auditor;

--
-- Name: TABLE replay; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT,INSERT ON TABLE outbox.replay TO outbox_publisher;
GRANT SELECT ON TABLE outbox.replay TO outbox_auditor;

--
-- Name: COLUMN replay.replay_id; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(replay_id) ON TABLE outbox.replay TO outbox_retention;

--
-- Name: COLUMN replay.state; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(state) ON TABLE outbox.replay TO outbox_publisher;
GRANT SELECT(state) ON TABLE outbox.replay TO outbox_retention;

--
-- Name: COLUMN replay.reason; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(reason) ON TABLE outbox.replay TO outbox_publisher;

--
-- Name: COLUMN replay.from_batch; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(from_batch) ON TABLE outbox.replay TO outbox_retention;

--
-- Name: COLUMN replay.to_batch; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT(to_batch) ON TABLE outbox.replay TO outbox_retention;

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
GRANT SELECT(lease_until) ON TABLE outbox.replay TO outbox_retention;

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
GRANT SELECT(cursor_batch) ON TABLE outbox.replay TO outbox_retention;

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
-- Name: TABLE audit_replayed; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_replayed TO outbox_auditor;

--
-- Name: TABLE audit_history; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_history TO outbox_auditor;

--
-- Name: TABLE audit_input; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_input TO outbox_auditor;

--
-- Name: TABLE audit_key_without_output; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_key_without_output TO outbox_auditor;

--
-- Name: TABLE audit_minute; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_minute TO outbox_auditor;

--
-- Name: TABLE operation; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.operation TO outbox_auditor;

--
-- Name: COLUMN operation.os_user; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(os_user) ON TABLE outbox.operation TO outbox_writer;
GRANT INSERT(os_user) ON TABLE outbox.operation TO outbox_publisher;
GRANT INSERT(os_user) ON TABLE outbox.operation TO outbox_retention;
GRANT INSERT(os_user) ON TABLE outbox.operation TO outbox_eraser;

--
-- Name: COLUMN operation.host; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(host) ON TABLE outbox.operation TO outbox_writer;
GRANT INSERT(host) ON TABLE outbox.operation TO outbox_publisher;
GRANT INSERT(host) ON TABLE outbox.operation TO outbox_retention;
GRANT INSERT(host) ON TABLE outbox.operation TO outbox_eraser;

--
-- Name: COLUMN operation.command; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(command) ON TABLE outbox.operation TO outbox_writer;
GRANT INSERT(command) ON TABLE outbox.operation TO outbox_publisher;
GRANT INSERT(command) ON TABLE outbox.operation TO outbox_retention;
GRANT INSERT(command) ON TABLE outbox.operation TO outbox_eraser;

--
-- Name: COLUMN operation.arguments; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(arguments) ON TABLE outbox.operation TO outbox_writer;
GRANT INSERT(arguments) ON TABLE outbox.operation TO outbox_publisher;
GRANT INSERT(arguments) ON TABLE outbox.operation TO outbox_retention;
GRANT INSERT(arguments) ON TABLE outbox.operation TO outbox_eraser;

--
-- Name: COLUMN operation.result; Type: ACL; Schema: outbox; Owner: -
--

GRANT INSERT(result) ON TABLE outbox.operation TO outbox_writer;
GRANT INSERT(result) ON TABLE outbox.operation TO outbox_publisher;
GRANT INSERT(result) ON TABLE outbox.operation TO outbox_retention;
GRANT INSERT(result) ON TABLE outbox.operation TO outbox_eraser;

--
-- Name: TABLE audit_operation; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_operation TO outbox_auditor;

--
-- Name: TABLE audit_reconciliation; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_reconciliation TO outbox_auditor;

--
-- Name: TABLE audit_replay; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_replay TO outbox_auditor;

--
-- Name: TABLE audit_sent; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_sent TO outbox_auditor;

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
-- Name: COLUMN publisher_process.heartbeat_at; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(heartbeat_at) ON TABLE outbox.publisher_process TO outbox_publisher;

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

--
-- Name: TABLE audit_service; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_service TO outbox_auditor;

--
-- Name: TABLE output_row; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.output_row TO outbox_auditor;

--
-- Name: TABLE audit_session; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_session TO outbox_auditor;

--
-- Name: TABLE event; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.event TO outbox_writer;
GRANT SELECT ON TABLE outbox.event TO outbox_publisher;
GRANT SELECT ON TABLE outbox.event TO outbox_auditor;

--
-- Name: TABLE audit_session_output; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_session_output TO outbox_auditor;

--
-- Name: TABLE audit_topic_minute; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_topic_minute TO outbox_auditor;

--
-- Name: TABLE audit_undelivered; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_undelivered TO outbox_auditor;

--
-- Name: TABLE audit_undelivered_row; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.audit_undelivered_row TO outbox_auditor;

--
-- Name: TABLE erased_key; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.erased_key TO outbox_writer;
GRANT SELECT ON TABLE outbox.erased_key TO outbox_auditor;

--
-- Name: TABLE erased_offset; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.erased_offset TO outbox_writer;
GRANT SELECT ON TABLE outbox.erased_offset TO outbox_auditor;

--
-- Name: TABLE output_lineage; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.output_lineage TO outbox_auditor;

--
-- Name: TABLE parked_topic; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT,INSERT ON TABLE outbox.parked_topic TO outbox_publisher;
GRANT SELECT ON TABLE outbox.parked_topic TO outbox_auditor;

--
-- Name: COLUMN parked_topic.decided_at; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(decided_at) ON TABLE outbox.parked_topic TO outbox_publisher;

--
-- Name: COLUMN parked_topic.ended_at; Type: ACL; Schema: outbox; Owner: -
--

GRANT UPDATE(ended_at) ON TABLE outbox.parked_topic TO outbox_publisher;

--
-- Name: TABLE removed_letters; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.removed_letters TO outbox_writer;
GRANT SELECT ON TABLE outbox.removed_letters TO outbox_publisher;
GRANT SELECT ON TABLE outbox.removed_letters TO outbox_auditor;

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
-- Name: TABLE retention; Type: ACL; Schema: outbox; Owner: -
--

GRANT SELECT ON TABLE outbox.retention TO outbox_writer;
GRANT SELECT ON TABLE outbox.retention TO outbox_publisher;
GRANT SELECT ON TABLE outbox.retention TO outbox_auditor;
GRANT SELECT ON TABLE outbox.retention TO outbox_retention;

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
