-- Recovery: what each start found (run), named ledger positions (savepoint), what the running job is asked for (request).

-- What a generation continues, and at what price.
ALTER TABLE outbox.generation
    ADD COLUMN from_generation integer,            -- the position that it continues; NULL for the first one
    ADD COLUMN from_batch      bigint,             -- its newest stream batch; NULL where that generation had none
    ADD COLUMN savepoint       text COLLATE "C",   -- the savepoint that it restores
    ADD COLUMN read_again      bigint NOT NULL DEFAULT 0,   -- offsets that it reads a second time, at the most
    ADD COLUMN explanation     text NOT NULL DEFAULT '',    -- what was found, for people
    ADD COLUMN cut_offsets     jsonb,              -- where Kafka had lost the input's end: from there on it gives offsets out a second time
    ADD CONSTRAINT generation_continues_one CHECK (from_generation < generation AND (from_batch IS NULL OR from_generation IS NOT NULL)),
    ADD CONSTRAINT generation_savepoint_named CHECK ((savepoint IS NOT NULL) = (reason = 'savepoint')),
    ADD CONSTRAINT generation_read_again_natural CHECK (read_again >= 0),
    ADD CONSTRAINT generation_cut_object CHECK (jsonb_typeof(cut_offsets) = 'object');

-- Bytes of the encoded outputs: how large a backlog is, without reading the rows.
ALTER TABLE outbox.batch
    ADD COLUMN output_bytes bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT batch_output_bytes_natural CHECK (output_bytes >= 0);

-- The job that holds itself back while too much waits to be delivered.
ALTER TABLE outbox.writer
    ADD COLUMN held_back_since timestamptz,
    ADD COLUMN held_back_because text,
    ADD CONSTRAINT writer_held_back_whole CHECK (num_nulls(held_back_since, held_back_because) IN (0, 2));

-- A retry must know the types of events whose type is a record header.
ALTER TABLE outbox.dead_letter
    ADD COLUMN event_types text[],                 -- NULL where the events' values tell their types
    ADD CONSTRAINT dead_letter_types_parallel CHECK (cardinality(event_types) = cardinality(event_offsets));

-- By place as well: one key may have any number of letters.
CREATE INDEX dead_letter_place_idx ON outbox.dead_letter (session_key, topic_id, partition, first_offset);
DROP INDEX outbox.dead_letter_session_key_idx;

-- One row a start of the job: was it restored, from what, and where does it resume?
CREATE TABLE outbox.run (
    run_id                uuid        NOT NULL,
    number                bigint      GENERATED ALWAYS AS IDENTITY,   -- the order of the starts, whatever the servers' clocks say
    generation            integer     NOT NULL,
    restored              text        NOT NULL,
    spark_batch           bigint      NOT NULL,    -- the next batch that Spark runs
    resumes_at            jsonb       NOT NULL,
    high_water            jsonb       NOT NULL,    -- outputs closing below it are there already
    read_again            bigint      NOT NULL,    -- offsets that this start reads a second time, at the most
    explanation           text        NOT NULL,    -- the report for people
    attempt               integer     NOT NULL,    -- 1 in a new process, more after a restart inside it
    transform_fingerprint text        NOT NULL,
    host                  text        NOT NULL,
    pid                   integer     NOT NULL,
    system_identifier     bigint      NOT NULL,    -- the Postgres that it found
    timeline              integer     NOT NULL,
    started_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at              timestamptz,             -- NULL where it runs or was killed
    ended_because         text,
    CONSTRAINT run_pkey PRIMARY KEY (run_id),
    CONSTRAINT run_number_key UNIQUE (number),
    CONSTRAINT run_generation_fkey FOREIGN KEY (generation) REFERENCES outbox.generation (generation),
    CONSTRAINT run_restored_known CHECK (restored IN ('fresh', 'unused_generation', 'checkpoint', 'savepoint', 'new_generation')),
    CONSTRAINT run_natural CHECK (least(spark_batch, read_again) >= 0 AND attempt > 0),
    CONSTRAINT run_objects CHECK (jsonb_typeof(resumes_at) = 'object' AND jsonb_typeof(high_water) = 'object'),
    CONSTRAINT run_ended_whole CHECK (num_nulls(ended_at, ended_because) IN (0, 2))
);

-- A named ledger position: the newest stream batch of a generation, or the generation's own start where it had none. Nothing is copied, so
-- the ledger row must stay.
CREATE TABLE outbox.savepoint (
    savepoint_id bigint           GENERATED ALWAYS AS IDENTITY,
    name         text COLLATE "C" NOT NULL,
    generation   integer          NOT NULL,
    batch_id     bigint,
    created_at   timestamptz      NOT NULL DEFAULT clock_timestamp(),
    deleted_at   timestamptz,
    CONSTRAINT savepoint_pkey PRIMARY KEY (savepoint_id),
    CONSTRAINT savepoint_generation_fkey FOREIGN KEY (generation) REFERENCES outbox.generation (generation),
    CONSTRAINT savepoint_batch_fkey FOREIGN KEY (batch_id) REFERENCES outbox.batch (batch_id),
    CONSTRAINT savepoint_name_form CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$')
);

CREATE UNIQUE INDEX savepoint_name_key ON outbox.savepoint (name) WHERE deleted_at IS NULL;

-- What a command asks of the running job, which answers between two batches. Bound to a run: what nobody answered dies with it.
CREATE TABLE outbox.request (
    request_id  bigint      GENERATED ALWAYS AS IDENTITY,
    run_id      uuid        NOT NULL,
    kind        text        NOT NULL,
    arguments   jsonb       NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    answered_at timestamptz,
    outcome     text,
    answer      text,                              -- for people
    CONSTRAINT request_pkey PRIMARY KEY (request_id),
    CONSTRAINT request_kind_known CHECK (kind IN ('stop', 'restore', 'rescale')),
    CONSTRAINT request_arguments_object CHECK (jsonb_typeof(arguments) = 'object'),
    CONSTRAINT request_outcome_known CHECK (outcome IN ('done', 'refused')),
    CONSTRAINT request_answered_whole CHECK (num_nulls(answered_at, outcome, answer) IN (0, 3))
);

CREATE INDEX request_open_idx ON outbox.request (run_id) WHERE answered_at IS NULL;

-- Which generation an output came from, beside what the view had.
CREATE OR REPLACE VIEW outbox.event AS
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
    b.created_at AS committed_at,
    b.kind AS batch_kind,
    b.generation
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

GRANT SELECT, INSERT, UPDATE (ended_at, ended_because) ON outbox.run TO outbox_writer;
GRANT SELECT, INSERT, UPDATE (deleted_at) ON outbox.savepoint TO outbox_writer;
GRANT SELECT, INSERT, UPDATE (answered_at, outcome, answer) ON outbox.request TO outbox_writer;
GRANT UPDATE (held_back_since, held_back_because) ON outbox.writer TO outbox_writer;
GRANT SELECT ON outbox.run, outbox.savepoint, outbox.request TO outbox_auditor;
