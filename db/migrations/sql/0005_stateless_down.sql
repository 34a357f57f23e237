-- Takes back what 0005_stateless_up.sql did. Runs between 0004_audit_down.sql and 0004_audit_up.sql: tables whose columns come back in the
-- middle are made anew, because their order is part of what 0004 is. There is no checkpoint: the old job finds it lost, and goes on by
-- reading again what is open.

SET LOCAL statement_timeout = 0;
SELECT pg_advisory_xact_lock(hashtextextended('outbox.writer', 0));

-- An owner that lives would go on with the new rules.
DO $$
DECLARE
    owner record;
BEGIN
    SELECT w.run_id, w.host, w.pid, w.backend_pid INTO owner
    FROM outbox.writer w
    JOIN pg_stat_activity a ON a.pid = w.backend_pid AND a.datname = current_database()
        AND (a.backend_start = w.backend_start) IS NOT FALSE
    WHERE w.run_id IS NOT NULL;
    IF FOUND THEN
        RAISE EXCEPTION 'run % (pid % on %) owns this outbox and is alive: stop it (spark-job stop), downgrade, start the old version%',
            owner.run_id, owner.pid, owner.host,
            '. If that process is gone and only its connection is left: SELECT pg_terminate_backend(' || owner.backend_pid || ')'
            USING ERRCODE = 'object_in_use';
    END IF;
END $$;

-- In 0004 a savepoint's position is its ledger row's.
DO $$
DECLARE
    names text;
BEGIN
    SELECT string_agg(s.name, ', ' ORDER BY s.savepoint_id) INTO names
    FROM outbox.savepoint s
    WHERE s.deleted_at IS NULL AND s.batch_id IS NOT NULL AND NOT EXISTS (SELECT FROM outbox.batch b WHERE b.batch_id = s.batch_id);
    IF names IS NOT NULL THEN
        RAISE EXCEPTION 'the ledger rows of savepoints were pruned, and the former revision has their positions nowhere else: %. %', names,
            'Delete them (spark-job savepoint delete NAME) or stay at this revision' USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;

-- {topic id: {partition: offset}}: the safe offset where something is open, else the end.
CREATE FUNCTION outbox.lowered_to_safe(ends jsonb, open_state jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE
    RETURN (
        SELECT coalesce(jsonb_object_agg(t.id, (
            SELECT coalesce(jsonb_object_agg(p.partition, least(
                p.at::bigint, (open_state #>> ARRAY[t.id, p.partition, 'safe'])::bigint)), '{}')
            FROM jsonb_each_text(t.partitions) AS p (partition, at))), '{}')
        FROM jsonb_each(ends) AS t (id, partitions));

CREATE TEMPORARY TABLE old_generation ON COMMIT DROP AS TABLE outbox.generation;
CREATE TEMPORARY TABLE old_run ON COMMIT DROP AS TABLE outbox.run;
CREATE TEMPORARY TABLE old_savepoint ON COMMIT DROP AS TABLE outbox.savepoint;
CREATE TEMPORARY TABLE old_batch ON COMMIT DROP AS TABLE outbox.batch;
ALTER TABLE outbox.dead_letter DROP CONSTRAINT dead_letter_generation_fkey;
DROP VIEW outbox.event;
DROP TABLE outbox.batch, outbox.run, outbox.savepoint, outbox.generation;

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
    from_generation      integer,
    from_batch           bigint,
    savepoint            text COLLATE "C",
    read_again           bigint      NOT NULL DEFAULT 0,
    explanation          text        NOT NULL DEFAULT '',
    cut_offsets          jsonb,
    CONSTRAINT generation_pkey PRIMARY KEY (generation),
    CONSTRAINT generation_directory_token_key UNIQUE (directory_token),
    CONSTRAINT generation_positive CHECK (generation > 0),
    CONSTRAINT generation_reason_known CHECK (reason IN ('first', 'checkpoint_lost', 'savepoint', 'rescale', 'outbox_behind',
        'new_topic', 'data_loss', 'changed_assembly', 'requested')),
    CONSTRAINT generation_policy_known CHECK (policy IN ('skip', 'reissue')),
    CONSTRAINT generation_revision_natural CHECK (revision >= 0),
    CONSTRAINT generation_objects CHECK (jsonb_typeof(start_offsets) = 'object' AND jsonb_typeof(high_water) = 'object'
        AND jsonb_typeof(topics) = 'object' AND jsonb_typeof(assembly) = 'object'),
    CONSTRAINT generation_continues_one CHECK (from_generation < generation AND (from_batch IS NULL OR from_generation IS NOT NULL)),
    CONSTRAINT generation_savepoint_named CHECK ((savepoint IS NOT NULL) = (reason = 'savepoint')),
    CONSTRAINT generation_read_again_natural CHECK (read_again >= 0),
    CONSTRAINT generation_cut_object CHECK (jsonb_typeof(cut_offsets) = 'object')
);

-- Reading began at the safe offsets then, and what closes below the high water was not written again: the same position in the old words.
INSERT INTO outbox.generation (generation, directory_token, start_offsets, high_water, topics, reason, policy, revision, assembly,
    assembly_fingerprint, run_id, created_at, from_generation, from_batch, savepoint, explanation, cut_offsets)
SELECT g.generation, replace(gen_random_uuid()::text, '-', ''), outbox.lowered_to_safe(g.start_offsets, g.open_state), g.start_offsets,
       g.topics, CASE WHEN g.reason IN ('upgrade', 'truncation', 'fork', 'skip') THEN 'requested' ELSE g.reason END, g.policy, g.revision,
       '{"buckets": 8, "shuffle_partitions": 2}'::jsonb || jsonb_build_object('topics', (
           SELECT coalesce(jsonb_agg(DISTINCT t.topic), '[]') FROM jsonb_each_text(g.topics) AS t (id, topic))) || g.assembly,
       'downgraded', g.run_id, g.created_at, g.from_generation, g.from_batch, g.savepoint, g.explanation, g.cut_offsets
FROM old_generation g;

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
    recomputed_at         timestamptz,
    recomputed_hash       bytea,
    created_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    output_bytes          bigint      NOT NULL DEFAULT 0,
    CONSTRAINT batch_positive CHECK (batch_id > 0 AND part >= 0),
    CONSTRAINT batch_kind_known CHECK (kind IN ('stream', 'retry', 'requeue')),
    CONSTRAINT batch_stream_offsets CHECK (
        num_nulls(spark_batch, start_offsets, end_offsets, done_offsets, safe_offsets) = CASE kind WHEN 'stream' THEN 0 ELSE 5 END),
    CONSTRAINT batch_offsets_objects CHECK (jsonb_typeof(start_offsets) = 'object' AND jsonb_typeof(end_offsets) = 'object'
        AND jsonb_typeof(done_offsets) = 'object' AND jsonb_typeof(safe_offsets) = 'object'),
    CONSTRAINT batch_counts_natural CHECK (
        least(spark_batch, input_events, sessions, output_events, dead_letters, duplicate_events, skipped_sessions) >= 0),
    CONSTRAINT batch_content_hash_length CHECK (length(content_hash) = 32),
    CONSTRAINT batch_recomputed_whole CHECK (recomputed_hash IS NULL OR (recomputed_at IS NOT NULL AND length(recomputed_hash) = 32)),
    CONSTRAINT batch_output_bytes_natural CHECK (output_bytes >= 0)
);

-- Spark's number grew within a generation then, and told which row is the newest: the rows are numbered in their order.
INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, part, commit_id, run_id, start_offsets, end_offsets, done_offsets,
    safe_offsets, input_events, sessions, output_events, dead_letters, duplicate_events, content_hash, transform_fingerprint, created_at,
    output_bytes)
SELECT b.batch_id, b.kind, b.generation, CASE b.kind WHEN 'stream' THEN b.place - 1 END, b.part, b.commit_id,
       b.run_id, b.start_offsets, b.end_offsets, b.end_offsets,
       CASE WHEN b.kind = 'stream' THEN outbox.lowered_to_safe(b.end_offsets, b.open_state) END, b.input_events, b.sessions,
       b.output_events, b.dead_letters, b.duplicate_events, decode(repeat('00', 32), 'hex'), b.transform_fingerprint, b.created_at,
       b.output_bytes
FROM (
    SELECT o.*, dense_rank() OVER (PARTITION BY o.generation, o.kind ORDER BY o.first_part) AS place
    FROM (SELECT i.*, min(i.batch_id) OVER (PARTITION BY i.run_id, i.spark_batch) AS first_part FROM old_batch i) o
) b
ORDER BY b.batch_id;

ALTER TABLE outbox.batch
    ADD CONSTRAINT batch_pkey PRIMARY KEY (batch_id),
    ADD CONSTRAINT batch_stream_position_key UNIQUE (generation, spark_batch, part),
    ADD CONSTRAINT batch_generation_fkey FOREIGN KEY (generation) REFERENCES outbox.generation (generation);
CREATE INDEX batch_created_at_idx ON outbox.batch (created_at);
ALTER TABLE outbox.dead_letter
    ADD CONSTRAINT dead_letter_generation_fkey FOREIGN KEY (generation) REFERENCES outbox.generation (generation);

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

CREATE TABLE outbox.run (
    run_id                uuid        NOT NULL,
    number                bigint      GENERATED ALWAYS AS IDENTITY,
    generation            integer     NOT NULL,
    restored              text        NOT NULL,
    spark_batch           bigint      NOT NULL,
    resumes_at            jsonb       NOT NULL,
    high_water            jsonb       NOT NULL,
    read_again            bigint      NOT NULL,
    explanation           text        NOT NULL,
    attempt               integer     NOT NULL,
    transform_fingerprint text        NOT NULL,
    host                  text        NOT NULL,
    pid                   integer     NOT NULL,
    system_identifier     bigint      NOT NULL,
    timeline              integer     NOT NULL,
    started_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at              timestamptz,
    ended_because         text,
    CONSTRAINT run_pkey PRIMARY KEY (run_id),
    CONSTRAINT run_number_key UNIQUE (number),
    CONSTRAINT run_generation_fkey FOREIGN KEY (generation) REFERENCES outbox.generation (generation),
    CONSTRAINT run_restored_known CHECK (restored IN ('fresh', 'unused_generation', 'checkpoint', 'savepoint', 'new_generation')),
    CONSTRAINT run_natural CHECK (least(spark_batch, read_again) >= 0 AND attempt > 0),
    CONSTRAINT run_objects CHECK (jsonb_typeof(resumes_at) = 'object' AND jsonb_typeof(high_water) = 'object'),
    CONSTRAINT run_ended_whole CHECK (num_nulls(ended_at, ended_because) IN (0, 2))
);

INSERT INTO outbox.run (run_id, number, generation, restored, spark_batch, resumes_at, high_water, read_again, explanation, attempt,
    transform_fingerprint, host, pid, system_identifier, timeline, started_at, ended_at, ended_because)
OVERRIDING SYSTEM VALUE
SELECT r.run_id, r.number, r.generation, CASE r.restored WHEN 'position' THEN 'new_generation' ELSE r.restored END, 0, r.resumes_at,
       r.resumes_at, r.rebuild_offsets, r.explanation, r.attempt, r.transform_fingerprint, r.host, r.pid, r.system_identifier, r.timeline,
       r.started_at, r.ended_at, r.ended_because
FROM old_run r;
SELECT setval(pg_get_serial_sequence('outbox.run', 'number'), max(number)) FROM outbox.run;

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

-- A deleted one may have outlived its ledger row.
INSERT INTO outbox.savepoint (savepoint_id, name, generation, batch_id, created_at, deleted_at)
OVERRIDING SYSTEM VALUE
SELECT s.savepoint_id, s.name, s.generation, b.batch_id, s.created_at, s.deleted_at
FROM old_savepoint s
LEFT JOIN outbox.batch b ON b.batch_id = s.batch_id;
SELECT setval(pg_get_serial_sequence('outbox.savepoint', 'savepoint_id'), max(savepoint_id)) FROM outbox.savepoint;
CREATE UNIQUE INDEX savepoint_name_key ON outbox.savepoint (name) WHERE deleted_at IS NULL;

DROP FUNCTION outbox.lowered_to_safe(jsonb, jsonb);

-- Copies parked rows into a new batch of the ledger, so that they go out by the ordinary cursor. The caller computes the lanes, because the
-- lane hash is not to be had in SQL; `lane_count` says for how many.
CREATE OR REPLACE FUNCTION outbox.requeue(session_keys text[], batch_ids bigint[], lanes integer[], lane_count integer, run_id uuid)
    RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
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

GRANT SELECT, INSERT ON outbox.generation TO outbox_writer;
GRANT SELECT, INSERT, UPDATE (recomputed_at, recomputed_hash) ON outbox.batch TO outbox_writer;
GRANT SELECT, INSERT, UPDATE (batch_id, open_sessions, open_events, open_bytes, state_bytes, oldest_open) ON outbox.bucket TO outbox_writer;
GRANT SELECT, INSERT, UPDATE (ended_at, ended_because) ON outbox.run TO outbox_writer;
GRANT SELECT, INSERT, UPDATE (deleted_at) ON outbox.savepoint TO outbox_writer;
GRANT SELECT ON outbox.generation, outbox.batch TO outbox_publisher;
GRANT SELECT ON outbox.generation, outbox.batch, outbox.bucket, outbox.run, outbox.savepoint TO outbox_auditor;
