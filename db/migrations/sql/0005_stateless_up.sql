-- No state in Spark: the ledger's newest row says where the job is and what is open there; checkpoints, buckets and high waters go.

-- No batch and no start meanwhile. Indexes and checks over the ledger take seconds for each million of its rows.
SET LOCAL statement_timeout = 0;
SELECT pg_advisory_xact_lock(hashtextextended('outbox.writer', 0));

-- An owner that lives would go on with the old rules.
DO $$
DECLARE
    owner record;
BEGIN
    SELECT w.run_id, w.host, w.pid, w.backend_pid INTO owner
    FROM outbox.writer w
    JOIN pg_stat_activity a ON a.pid = w.backend_pid AND a.datname = current_database()
        AND (a.backend_start = w.backend_start) IS NOT FALSE  -- hidden from some roles: then the pid must do
    WHERE w.run_id IS NOT NULL;
    IF FOUND THEN
        RAISE EXCEPTION 'run % (pid % on %) owns this outbox and is alive: stop the job (spark-job stop), upgrade, start the new version%',
            owner.run_id, owner.pid, owner.host,
            '. If that process is gone and only its connection is left: SELECT pg_terminate_backend(' || owner.backend_pid || ')'
            USING ERRCODE = 'object_in_use';
    END IF;
END $$;

--------------------------------------------------------------------------------------------------------------------------------------------
-- Columns

ALTER TABLE outbox.generation
    ADD COLUMN open_state jsonb NOT NULL DEFAULT '{}',   -- what is open at start_offsets, as in outbox.batch
    ADD COLUMN lineage    jsonb NOT NULL DEFAULT '[]',   -- [{"assembly": {...}, "start": offsets}]: the descriptions before its own
    ADD COLUMN accepted_deliveries jsonb,                -- [{"batch_id": 7, "commit_id": "..."}]: delivered, and not in the ledger
    DROP COLUMN assembly_fingerprint,                    -- nobody reads it
    DROP CONSTRAINT generation_reason_known,
    ADD CONSTRAINT generation_reason_known CHECK (reason IN ('first', 'checkpoint_lost', 'savepoint', 'rescale', 'outbox_behind',
        'new_topic', 'data_loss', 'changed_assembly', 'requested', 'upgrade', 'truncation', 'fork', 'skip'));

-- {topic id: {partition: {"safe": first offset of what is open, "sessions", "events", "bytes", "digest", "tombstones", "upgraded"}}}
ALTER TABLE outbox.batch ADD COLUMN open_state jsonb;

ALTER TABLE outbox.savepoint
    DROP CONSTRAINT savepoint_batch_fkey,
    ADD COLUMN end_offsets jsonb,
    ADD COLUMN open_state  jsonb,
    ADD COLUMN lineage     jsonb,
    ADD COLUMN assembly    jsonb,
    ADD COLUMN topics      jsonb,
    ADD COLUMN revision    integer;

--------------------------------------------------------------------------------------------------------------------------------------------
-- Positions: the current one, and each savepoint's

-- How the state lay in Spark's checkpoint is no part of what a session is; neither are the topics.
UPDATE outbox.generation SET assembly = assembly - ARRAY['buckets', 'shuffle_partitions', 'max_bucket_bytes', 'topics']
WHERE assembly ?| ARRAY['buckets', 'shuffle_partitions', 'max_bucket_bytes', 'topics'];

-- A skip goes on where an earlier generation ended, if that got further: its newest row says what was open there.
UPDATE outbox.batch b
SET open_state = (
    SELECT coalesce(jsonb_object_agg(t.id, t.open) FILTER (WHERE t.open IS NOT NULL), '{}')
    FROM (
        SELECT e.id, (
            SELECT jsonb_object_agg(p.partition, jsonb_build_object('safe', s.at, 'sessions', 0, 'events', 0, 'bytes', 0, 'upgraded', true))
            FROM jsonb_each_text(e.partitions) AS p (partition, at)
            CROSS JOIN LATERAL (SELECT (b.safe_offsets #>> ARRAY[e.id, p.partition])::bigint AS at) s
            WHERE s.at < p.at::bigint) AS open
        FROM jsonb_each(b.end_offsets) AS e (id, partitions)) t)
WHERE b.batch_id IN (SELECT max(n.batch_id) FROM outbox.batch n WHERE n.kind = 'stream' GROUP BY n.generation);

CREATE TABLE outbox.moved_position AS
WITH newest AS MATERIALIZED (
    -- In the old scheme Spark's batch number grew with the generation.
    SELECT g.generation, b.batch_id, coalesce(b.run_id, g.run_id) AS run_id, coalesce(b.end_offsets, g.start_offsets) AS ends,
           coalesce(b.done_offsets, g.high_water) AS done, coalesce(b.safe_offsets, g.start_offsets) AS safe
    FROM outbox.generation g
    LEFT JOIN LATERAL (
        SELECT n.batch_id, n.run_id, n.end_offsets, n.done_offsets, n.safe_offsets FROM outbox.batch n
        WHERE n.generation = g.generation AND n.kind = 'stream' AND n.spark_batch IS NOT NULL
        ORDER BY n.spark_batch DESC, n.part DESC LIMIT 1
    ) b ON true
), old AS (
    SELECT NULL::bigint AS savepoint_id, n.generation, n.batch_id, n.run_id, n.ends, n.done, n.safe
    FROM newest n
    WHERE n.generation = (SELECT max(g.generation) FROM outbox.generation g)
    UNION ALL
    SELECT s.savepoint_id, s.generation, s.batch_id, NULL, coalesce(b.end_offsets, g.start_offsets), coalesce(b.done_offsets, g.high_water),
           coalesce(b.safe_offsets, g.start_offsets)
    FROM outbox.savepoint s
    JOIN outbox.generation g ON g.generation = s.generation
    LEFT JOIN outbox.batch b ON b.batch_id = s.batch_id
), place AS (
    -- A job that was catching up had read to its end, and all that closes below `done` is written: it must not be sent again. Above a later
    -- cut, the same offsets name other events.
    SELECT o.savepoint_id, t.id, p.partition, least(max(p.at::bigint), min(c.at)) AS ends, min(s.at) AS safe
    FROM old o
    CROSS JOIN LATERAL (VALUES (o.ends), (o.done)) AS m (map)
    CROSS JOIN LATERAL jsonb_each(m.map) AS t (id, partitions)
    CROSS JOIN LATERAL jsonb_each_text(t.partitions) AS p (partition, at)
    -- NULL where no later generation has one.
    CROSS JOIN LATERAL (
        SELECT min((g.cut_offsets #>> ARRAY[t.id, p.partition])::bigint) AS at FROM outbox.generation g WHERE g.generation > o.generation
    ) c
    -- A topic that is read no more has only `done`: what was open there, the last generation that read it knows.
    CROSS JOIN LATERAL (
        SELECT coalesce((o.safe #>> ARRAY[t.id, p.partition])::bigint, (
            SELECT (n.safe #>> ARRAY[t.id, p.partition])::bigint FROM newest n
            WHERE n.generation < o.generation AND n.safe #> ARRAY[t.id, p.partition] IS NOT NULL
            ORDER BY n.generation DESC LIMIT 1)) AS at
    ) s
    GROUP BY o.savepoint_id, t.id, p.partition
), topic AS (
    SELECT l.savepoint_id, l.id, jsonb_object_agg(l.partition, l.ends) AS ends,
           jsonb_object_agg(l.partition, jsonb_build_object('safe', l.safe, 'sessions', 0, 'events', 0, 'bytes', 0, 'upgraded', true))
               FILTER (WHERE l.safe < l.ends) AS open
    FROM place l
    GROUP BY l.savepoint_id, l.id
)
SELECT o.savepoint_id, o.generation, o.batch_id, o.run_id,
       coalesce(jsonb_object_agg(t.id, t.ends) FILTER (WHERE t.id IS NOT NULL), '{}') AS ends,
       coalesce(jsonb_object_agg(t.id, t.open) FILTER (WHERE t.open IS NOT NULL), '{}') AS open
FROM old o
LEFT JOIN topic t ON t.savepoint_id IS NOT DISTINCT FROM o.savepoint_id
GROUP BY o.savepoint_id, o.generation, o.batch_id, o.run_id;

-- What was open there was judged by one description, the generation's own.
UPDATE outbox.savepoint s
SET end_offsets = m.ends, open_state = m.open, lineage = jsonb_build_array(jsonb_build_object('assembly', g.assembly, 'start', '{}'::jsonb)),
    assembly = g.assembly, topics = g.topics, revision = g.revision
FROM outbox.moved_position m, outbox.generation g
WHERE m.savepoint_id = s.savepoint_id AND g.generation = m.generation;

INSERT INTO outbox.generation (generation, directory_token, start_offsets, high_water, open_state, topics, reason, policy, revision,
    assembly, run_id, from_generation, from_batch, explanation)
SELECT g.generation + 1, gen_random_uuid()::text, m.ends, '{}', m.open, g.topics, 'upgrade', g.policy, g.revision, g.assembly, m.run_id,
       g.generation, m.batch_id,
       'the schema was upgraded to 0005: generation ' || g.generation || ' had dealt with the input up to here'
           || coalesce(', with batch ' || m.batch_id, '') || ', and the sessions that were open are found again in Kafka'
FROM outbox.moved_position m
JOIN outbox.generation g ON g.generation = m.generation
WHERE m.savepoint_id IS NULL;
DROP TABLE outbox.moved_position;

--------------------------------------------------------------------------------------------------------------------------------------------
-- Views and functions that stand on what goes

CREATE OR REPLACE VIEW outbox.audit_ledger AS
-- Ids are dense from the first batch on whose rows are kept. Retention takes rows first.
SELECT
    b.batch_id,
    'missing' AS problem,
    b.generation,
    g.first_missing,
    b.batch_id - 1 AS last_missing,
    CASE WHEN g.first_missing = b.batch_id - 1 THEN 'batch ' || g.first_missing || ' is missing'
         ELSE 'batches ' || g.first_missing || ' to ' || b.batch_id - 1 || ' are missing' END AS detail
FROM (SELECT greatest(1, min(p.from_batch)) AS batch_id FROM outbox.output_partition p WHERE NOT p.detaching) kept
JOIN outbox.batch b ON b.batch_id > kept.batch_id
CROSS JOIN LATERAL (
    SELECT greatest(kept.batch_id, coalesce((SELECT max(f.batch_id) FROM outbox.batch f WHERE f.batch_id < b.batch_id), 0) + 1)
           AS first_missing
) g
WHERE NOT EXISTS (SELECT FROM outbox.batch f WHERE f.batch_id = b.batch_id - 1)
UNION ALL
-- Each stream row begins where the one before it in its generation ended, or is a further part of its Spark batch. A partition that the
-- former does not name may begin anywhere. Below the rows that are kept, retention leaves single ledger rows behind: only where none is
-- missing in between was the one before it indeed the former.
SELECT
    b.batch_id,
    'discontinuous',
    b.generation,
    NULL,
    NULL,
    'generation ' || b.generation || ': batch ' || b.batch_id || ' (Spark batch ' || b.spark_batch || ', part ' || b.part
        || ') does not continue batch ' || f.batch_id || ' (Spark batch ' || f.spark_batch || ', part ' || f.part || ')'
        || coalesce((
            SELECT ': ' || string_agg(t.id || '/' || p.partition || ' from '
                                      || coalesce(b.start_offsets #>> ARRAY[t.id, p.partition], 'nowhere') || ', not ' || p.last, ', '
                                      ORDER BY t.id, p.partition)
            FROM jsonb_each(f.end_offsets) AS t (id, partitions)
            CROSS JOIN LATERAL jsonb_each_text(t.partitions) AS p (partition, last)
            WHERE (b.run_id, b.spark_batch) <> (f.run_id, f.spark_batch)
              AND b.start_offsets #>> ARRAY[t.id, p.partition] IS DISTINCT FROM p.last), '')
FROM outbox.batch b
CROSS JOIN LATERAL (
    SELECT f.batch_id, f.run_id, f.spark_batch, f.part, f.start_offsets, f.end_offsets
    FROM outbox.batch f
    WHERE f.generation = b.generation AND f.kind = 'stream' AND f.batch_id < b.batch_id
    ORDER BY f.batch_id DESC
    LIMIT 1
) f
WHERE b.kind = 'stream'
  AND NOT CASE
    WHEN (b.run_id, b.spark_batch) = (f.run_id, f.spark_batch)
        THEN b.part = f.part + 1 AND b.start_offsets = f.start_offsets AND b.end_offsets = f.end_offsets
    ELSE b.part = 0 AND b.start_offsets @> f.end_offsets
    END
  AND (f.batch_id >= (SELECT greatest(1, min(p.from_batch)) FROM outbox.output_partition p WHERE NOT p.detaching) - 1
       OR b.batch_id - f.batch_id - 1 <= (
           SELECT count(*) FROM outbox.batch k WHERE k.batch_id > f.batch_id AND k.batch_id < b.batch_id))
UNION ALL
-- The first stream row of a generation begins where the generation does; those from before 0005 are not asked. The rows of a generation
-- come after the newest stream row of every earlier one, which retention keeps: where some are missing in between, this one may not be the
-- first.
SELECT
    b.batch_id,
    'discontinuous',
    g.generation,
    NULL,
    NULL,
    'generation ' || g.generation || ': batch ' || b.batch_id || ' (Spark batch ' || b.spark_batch || ', part ' || b.part
        || ') does not begin where its generation does'
        || coalesce((
            SELECT ': ' || string_agg(t.id || '/' || p.partition || ' from '
                                      || coalesce(b.start_offsets #>> ARRAY[t.id, p.partition], 'nowhere') || ', not ' || p.first, ', '
                                      ORDER BY t.id, p.partition)
            FROM jsonb_each(g.start_offsets) AS t (id, partitions)
            CROSS JOIN LATERAL jsonb_each_text(t.partitions) AS p (partition, first)
            WHERE b.start_offsets #>> ARRAY[t.id, p.partition] IS DISTINCT FROM p.first), '')
FROM outbox.generation g
CROSS JOIN LATERAL (
    SELECT n.batch_id, n.spark_batch, n.part, n.start_offsets FROM outbox.batch n
    WHERE n.generation = g.generation AND n.kind = 'stream'
    ORDER BY n.batch_id LIMIT 1
) b
CROSS JOIN LATERAL (
    SELECT coalesce(max(n.batch_id), 0) AS batch_id
    FROM outbox.generation e
    CROSS JOIN LATERAL (
        SELECT x.batch_id FROM outbox.batch x WHERE x.generation = e.generation AND x.kind = 'stream' ORDER BY x.batch_id DESC LIMIT 1
    ) n
    WHERE e.generation < g.generation
) f
WHERE g.generation >= (SELECT coalesce(max(u.generation), 0) FROM outbox.generation u WHERE u.reason = 'upgrade')
  AND NOT (b.part = 0 AND b.start_offsets @> g.start_offsets)
  AND b.batch_id - f.batch_id - 1 <= (
      SELECT count(*) FROM outbox.batch k WHERE k.batch_id > f.batch_id AND k.batch_id < b.batch_id)
UNION ALL
-- What an open session begins with was read; nothing is read backwards.
SELECT
    b.batch_id,
    'offsets',
    b.generation,
    NULL,
    NULL,
    t.id || '/' || p.partition || ': start ' || o.first || ', end ' || o.last || coalesce(', safe ' || o.safe, '')
FROM outbox.batch b
CROSS JOIN LATERAL jsonb_each(b.end_offsets) AS t (id, partitions)
CROSS JOIN LATERAL jsonb_each_text(t.partitions) AS p (partition, last)
CROSS JOIN LATERAL (
    SELECT coalesce((b.start_offsets #>> ARRAY[t.id, p.partition])::bigint, 0) AS first, p.last::bigint AS last,
           (b.open_state #>> ARRAY[t.id, p.partition, 'safe'])::bigint AS safe
) o
WHERE b.kind = 'stream' AND (o.first > o.last OR o.safe > o.last)
UNION ALL
SELECT
    b.batch_id,
    'time',
    b.generation,
    NULL,
    NULL,
    'committed at ' || b.created_at || ', before batch ' || f.batch_id || ' at ' || f.created_at
FROM outbox.batch b
JOIN outbox.batch f ON f.batch_id = b.batch_id - 1
WHERE b.created_at < f.created_at;

CREATE OR REPLACE VIEW outbox.audit_minute AS
SELECT m.minute, b.batches, b.input_events, b.sessions, b.output_events, b.dead_letters, d.deliveries, d.sessions AS delivered_sessions,
       d.events AS delivered_events, d.worst_lag_s
FROM (
    SELECT least((SELECT min(b.created_at) FROM outbox.batch b), (SELECT min(d.committed_at) FROM outbox.delivery d)) AS first,
           greatest((SELECT max(b.created_at) FROM outbox.batch b), (SELECT max(d.committed_at) FROM outbox.delivery d)) AS last
) span
CROSS JOIN LATERAL generate_series(date_trunc('minute', span.first), span.last, interval '1 minute') AS m (minute)
CROSS JOIN LATERAL (
    -- As `spark-job status` counts: a Spark batch once, whatever its parts, and no copies of parked rows.
    SELECT count(*) AS commits, count(DISTINCT (b.run_id, b.spark_batch)) FILTER (WHERE b.kind = 'stream') AS batches,
           coalesce(sum(b.input_events), 0)::bigint AS input_events, coalesce(sum(b.sessions), 0) AS sessions,
           coalesce(sum(b.output_events), 0)::bigint AS output_events, coalesce(sum(b.dead_letters), 0) AS dead_letters
    FROM outbox.batch b
    WHERE b.kind <> 'requeue' AND b.created_at >= m.minute AND b.created_at < m.minute + interval '1 minute'
) b
CROSS JOIN LATERAL (
    SELECT count(*) AS deliveries, coalesce(sum(d.sessions), 0)::bigint AS sessions, coalesce(sum(d.events), 0)::bigint AS events,
           -- Of the oldest batch that the delivery has rows of: its cursor range may begin with batches that have none in its lane.
           extract(epoch FROM max(d.committed_at - (
               SELECT b.created_at FROM outbox.batch b WHERE b.batch_id = (
                   SELECT o.batch_id FROM outbox.session_output o
                   WHERE o.lane = d.lane
                     AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key)
                   ORDER BY o.batch_id, o.session_key
                   LIMIT 1))))::double precision AS worst_lag_s
    FROM outbox.delivery d
    WHERE d.committed_at >= m.minute AND d.committed_at < m.minute + interval '1 minute' AND d.kind = 'delivery' AND d.sessions > 0
) d
WHERE b.commits > 0 OR d.deliveries > 0;

-- The current position: that of the newest stream row, or the generation's own where it has none yet. What Kafka has beyond read_to was not
-- judged yet, what lies from open_from on may belong to open sessions.
CREATE OR REPLACE VIEW outbox.audit_input AS
SELECT
    coalesce(g.topics ->> t.id, t.id) AS topic,
    p.partition::integer AS partition,
    p.read_to::bigint AS read_to,
    nullif((o.open_state #>> ARRAY[t.id, p.partition, 'safe'])::bigint, p.read_to::bigint) AS open_from,
    b.batch_id AS newest_batch,
    b.created_at AS committed_at,
    now() - b.created_at AS age,
    t.id AS topic_id
FROM outbox.generation g
LEFT JOIN LATERAL (
    SELECT n.batch_id, n.created_at, n.end_offsets, n.open_state FROM outbox.batch n
    WHERE n.generation = g.generation AND n.kind = 'stream'
    ORDER BY n.batch_id DESC LIMIT 1
) b ON true
CROSS JOIN LATERAL (
    SELECT coalesce(b.end_offsets, g.start_offsets) AS end_offsets,
           CASE WHEN b.batch_id IS NULL THEN g.open_state ELSE b.open_state END AS open_state
) o
CROSS JOIN LATERAL jsonb_each(o.end_offsets) AS t (id, partitions)
CROSS JOIN LATERAL jsonb_each_text(t.partitions) AS p (partition, read_to)
WHERE g.generation = (SELECT max(n.generation) FROM outbox.generation n);

CREATE OR REPLACE VIEW outbox.audit_history AS
SELECT
    o.session_key,
    b.created_at AS at,
    -- Reissued: an earlier generation had read beyond it. Later sessions have the revision too.
    CASE WHEN b.kind = 'retry' THEN 'retried'
         WHEN o.revision > 0 AND EXISTS (
            SELECT FROM outbox.generation g
            LEFT JOIN LATERAL (
                SELECT n.end_offsets FROM outbox.batch n
                WHERE n.generation = g.generation AND n.kind = 'stream'
                ORDER BY n.batch_id DESC LIMIT 1
            ) n ON true
            WHERE g.generation < b.generation
              AND (coalesce(n.end_offsets, g.start_offsets) #>> ARRAY[s.topic_id, s.partition::text])::bigint > s.end_offset)
         THEN 'reissued'
         ELSE 'closed' END AS what,
    'events ' || s.topic_id || '/' || s.partition || '/' || s.start_offset || ' to ' || s.end_offset || ', ' || s.events || ' in, '
        || s.outputs || ' outputs' AS detail,
    o.batch_id,
    b.generation,
    o.revision
FROM outbox.session_output o
JOIN outbox.batch b ON b.batch_id = o.batch_id AND b.kind <> 'requeue'
CROSS JOIN LATERAL unnest(o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends, o.session_events, o.session_outputs)
    AS s (topic_id, partition, start_offset, end_offset, events, outputs)
UNION ALL
SELECT
    o.session_key,
    d.committed_at,
    CASE d.kind WHEN 'resume' THEN 'skipped' ELSE 'delivered' END,
    CASE d.kind WHEN 'resume' THEN 'passed over by resume ' || d.seq || ' of epoch ' || d.epoch || ', lane ' || d.lane
                                   || coalesce(': ' || d.note, '')
         ELSE cardinality(o.topics) || ' outputs in delivery ' || d.seq || ' of epoch ' || d.epoch || ', lane ' || d.lane
              || CASE WHEN d.kafka_offsets IS NULL THEN ', offsets unknown' ELSE '' END END,
    o.batch_id,
    b.generation,
    o.revision
FROM outbox.session_output o
JOIN outbox.batch b ON b.batch_id = o.batch_id
JOIN outbox.delivery d
    ON d.lane = o.lane
    AND int8range(least(d.after_batch, d.to_batch), d.to_batch, '[]') @> o.batch_id
    AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key)
WHERE NOT EXISTS (
    SELECT FROM outbox.parked p
    WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id AND p.created_at <= d.committed_at)
UNION ALL
SELECT p.session_key, p.created_at, 'parked', p.reason || ': ' || p.detail, p.batch_id, b.generation, NULL
FROM outbox.parked p
LEFT JOIN outbox.batch b ON b.batch_id = p.batch_id
UNION ALL
SELECT p.session_key, p.state_changed_at, p.state, coalesce('goes out as batch ' || p.requeued_batch, 'will not go out'), p.batch_id,
       b.generation, NULL
FROM outbox.parked p
LEFT JOIN outbox.batch b ON b.batch_id = p.batch_id
WHERE p.state <> 'parked'
UNION ALL
SELECT d.session_key, d.created_at, 'dead-lettered',
       d.reason || ', letter ' || d.dead_letter_id || ', ' || d.event_count || ' events ' || d.topic || '/' || d.partition || '/'
           || d.first_offset || ' to ' || d.last_offset || ': ' || (regexp_match(rtrim(d.detail, E'\n'), '[^\n]*$'))[1],
       d.batch_id, d.generation, d.revision
FROM outbox.dead_letter d
UNION ALL
SELECT d.session_key, d.state_changed_at, 'letter ' || d.state,
       'letter ' || d.dead_letter_id || coalesce(', by batch ' || d.resolved_batch, ''), d.batch_id, d.generation, d.revision
FROM outbox.dead_letter d
WHERE d.state <> 'open'
UNION ALL
SELECT r.session_key, r.began_at, 'replayed',
       r.output_events || ' outputs by replay ' || r.replay_id || ', between ' || r.began_at || ' and ' || coalesce(r.ended_at::text, 'now')
           || coalesce(', to topic ' || r.target_topic, '')
           || CASE WHEN r.certain THEN '' ELSE ', unless it was among those it left out' END,
       r.batch_id, NULL, NULL
FROM outbox.audit_replayed r;

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

--------------------------------------------------------------------------------------------------------------------------------------------
-- What goes, and what the new columns must hold

DROP TABLE outbox.bucket;

ALTER TABLE outbox.batch
    DROP CONSTRAINT batch_stream_position_key,
    DROP CONSTRAINT batch_stream_offsets,
    DROP CONSTRAINT batch_offsets_objects,
    DROP CONSTRAINT batch_counts_natural,
    DROP CONSTRAINT batch_content_hash_length,
    DROP CONSTRAINT batch_recomputed_whole,
    DROP COLUMN done_offsets,
    DROP COLUMN safe_offsets,
    DROP COLUMN content_hash,
    DROP COLUMN recomputed_at,
    DROP COLUMN recomputed_hash,
    DROP COLUMN skipped_sessions,
    -- Spark's batch number begins anew with each run.
    ADD CONSTRAINT batch_spark_batch_key UNIQUE (run_id, spark_batch, part),
    ADD CONSTRAINT batch_stream_offsets CHECK (CASE kind WHEN 'stream' THEN num_nulls(spark_batch, start_offsets, end_offsets) = 0
        ELSE num_nonnulls(spark_batch, start_offsets, end_offsets, open_state) = 0 END),
    ADD CONSTRAINT batch_offsets_objects CHECK (jsonb_typeof(start_offsets) = 'object' AND jsonb_typeof(end_offsets) = 'object'
        AND jsonb_typeof(open_state) = 'object'),
    ADD CONSTRAINT batch_counts_natural CHECK (
        least(spark_batch, input_events, sessions, output_events, dead_letters, duplicate_events) >= 0),
    -- Most rows from before have none, hence NOT VALID.
    ADD CONSTRAINT batch_open_state_known CHECK (kind <> 'stream' OR open_state IS NOT NULL) NOT VALID;

-- The newest stream row of a generation is the one with its greatest batch_id.
CREATE INDEX batch_stream_position_idx ON outbox.batch (generation, batch_id) WHERE kind = 'stream';

ALTER TABLE outbox.generation
    DROP CONSTRAINT generation_directory_token_key,
    DROP CONSTRAINT generation_objects,
    DROP CONSTRAINT generation_read_again_natural,
    DROP COLUMN directory_token,
    DROP COLUMN high_water,
    DROP COLUMN read_again,
    ADD CONSTRAINT generation_objects CHECK (jsonb_typeof(start_offsets) = 'object' AND jsonb_typeof(open_state) = 'object'
        AND jsonb_typeof(topics) = 'object' AND jsonb_typeof(assembly) = 'object'),
    ADD CONSTRAINT generation_lineage_array CHECK (jsonb_typeof(lineage) = 'array'),
    ADD CONSTRAINT generation_accepted_array CHECK (jsonb_typeof(accepted_deliveries) = 'array');

ALTER TABLE outbox.run
    DROP CONSTRAINT run_restored_known,
    DROP CONSTRAINT run_natural,
    DROP CONSTRAINT run_objects,
    DROP COLUMN spark_batch,
    DROP COLUMN high_water,
    DROP COLUMN read_again,
    ADD COLUMN rebuild_offsets bigint NOT NULL DEFAULT 0,   -- read again, at the most, to find open sessions: between safe and end
    ADD COLUMN max_events      bigint,                      -- events that a batch of this run may have; NULL in rows from before 0005
    ADD CONSTRAINT run_restored_known CHECK (restored IN
        ('fresh', 'unused_generation', 'checkpoint', 'savepoint', 'new_generation', 'position')),
    ADD CONSTRAINT run_natural CHECK (rebuild_offsets >= 0 AND attempt > 0 AND max_events > 0),
    ADD CONSTRAINT run_objects CHECK (jsonb_typeof(resumes_at) = 'object');

ALTER TABLE outbox.savepoint
    ALTER COLUMN end_offsets SET NOT NULL,
    ALTER COLUMN open_state SET NOT NULL,
    ALTER COLUMN lineage SET NOT NULL,
    ALTER COLUMN assembly SET NOT NULL,
    ALTER COLUMN topics SET NOT NULL,
    ALTER COLUMN revision SET NOT NULL,
    ADD CONSTRAINT savepoint_objects CHECK (jsonb_typeof(end_offsets) = 'object' AND jsonb_typeof(open_state) = 'object'
        AND jsonb_typeof(assembly) = 'object' AND jsonb_typeof(topics) = 'object'),
    ADD CONSTRAINT savepoint_lineage_array CHECK (jsonb_typeof(lineage) = 'array'),
    ADD CONSTRAINT savepoint_revision_natural CHECK (revision >= 0);
