-- Deliveries of a lane are told apart from what was parked before or after them by their number, not by the clock, which may be set back.

-- Parked rows are updated where a resume led their lane back; a million takes seconds.
SET LOCAL statement_timeout = 0;

-- A publisher of the release before leaves 0, which is right unless it parks a row that it had sent before a resume led back to it.
ALTER TABLE outbox.parked
    ADD COLUMN after_seq bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT parked_after_seq_natural CHECK (after_seq >= 0);
COMMENT ON COLUMN outbox.parked.after_seq IS 'newest transaction of its lane when it was parked: later ones do not hold it';

-- Of those that are there only the time is known. A lane comes by twice only after a resume, so any number from the last resume on will do.
UPDATE outbox.parked p
SET after_seq = r.seq
FROM (
    SELECT k.batch_id, k.session_key, max(d.seq) AS seq
    FROM outbox.parked k
    JOIN outbox.delivery d ON d.epoch = k.epoch AND d.lane = k.lane AND d.kind = 'resume' AND d.committed_at <= k.created_at
    GROUP BY k.batch_id, k.session_key
) r
WHERE p.batch_id = r.batch_id AND p.session_key = r.session_key;

-- The views and the function as before, but by that number.
CREATE OR REPLACE VIEW outbox.output_row AS
SELECT
    o.*,
    b.created_at AS committed_at,
    b.kind AS batch_kind,
    b.generation,
    ep.epoch,
    CASE
        WHEN p.state IS NOT NULL THEN p.state
        WHEN l.cursor_batch > o.batch_id OR (l.cursor_batch = o.batch_id AND (l.cursor_key IS NULL OR l.cursor_key >= o.session_key))
            THEN 'delivered'
        ELSE 'pending'
    END AS delivery_state,
    -- The first delivery that carried it; after a resume there may be more. NULL where none did, or retention has it no more. A row that was
    -- parked is in those from before that. + 0: or the planner walks the lane's deliveries from the first on.
    (SELECT min(d.seq + 0)
     FROM outbox.delivery d
     WHERE d.epoch = ep.epoch AND d.lane = o.lane AND d.kind = 'delivery' AND (p.after_seq < d.seq) IS NOT TRUE
       AND int8range(least(d.after_batch, d.to_batch), d.to_batch, '[]') @> o.batch_id
       AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key)) AS delivery_seq,
    -- Whether a resume passed over it, and no delivery carried it.
    p.state IS NULL AND coalesce((
        SELECT bool_and(d.kind = 'resume')
        FROM outbox.delivery d
        WHERE d.epoch = ep.epoch AND d.lane = o.lane
          AND int8range(least(d.after_batch, d.to_batch), d.to_batch, '[]') @> o.batch_id
          AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key)), false) AS skipped
FROM outbox.session_output o
JOIN outbox.batch b ON b.batch_id = o.batch_id
LEFT JOIN LATERAL (SELECT e.epoch FROM outbox.lane_epoch e WHERE e.from_batch <= o.batch_id ORDER BY e.from_batch DESC LIMIT 1) ep ON true
LEFT JOIN outbox.lane l ON l.epoch = ep.epoch AND l.lane = o.lane
LEFT JOIN outbox.parked p ON p.session_key = o.session_key AND p.batch_id = o.batch_id;

-- Both bounds of batch_id prune.
CREATE OR REPLACE VIEW outbox.check_delivery_counts AS
SELECT d.epoch, d.lane, d.seq, d.after_batch, d.after_key, d.to_batch, d.to_key, d.sessions, d.events, r.sessions AS row_sessions,
       r.events AS row_events
FROM outbox.delivery d
CROSS JOIN LATERAL (
    SELECT coalesce(sum(cardinality(o.session_ends)), 0) AS sessions, coalesce(sum(cardinality(o.topics)), 0) AS events
    FROM outbox.session_output o
    WHERE o.lane = d.lane
      AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key)
      AND NOT EXISTS (
          SELECT FROM outbox.parked p
          WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id AND p.after_seq < d.seq)
) r
WHERE d.kind = 'delivery' AND d.after_batch IS NOT NULL;

CREATE OR REPLACE FUNCTION outbox.check_delivery_counts(from_batch bigint, to_batch bigint) RETURNS SETOF outbox.check_delivery_counts
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
                  WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id AND p.after_seq < d.seq)
        ) r
        WHERE d.kind = 'delivery' AND d.after_batch IS NOT NULL AND d.to_batch >= $1 AND d.to_batch <= $2
          AND int8range(least(d.after_batch, d.to_batch), d.to_batch, '[]') && int8range($1, nullif($2, 9223372036854775807), '[]')
    $query$ USING from_batch, to_batch, coalesce(first_batch, from_batch);
END $$;

CREATE OR REPLACE VIEW outbox.audit_sent AS
SELECT
    d.committed_at AS sent_at,
    e.topic,
    o.session_key,
    s.topic_id || '/' || s.partition || '/' || s.end_offset || '/' || (e.n - s.before - 1) AS outbox_id,
    o.revision,
    CASE WHEN e.partition IS NULL THEN d.kafka_offsets -> e.topic
         WHEN d.kafka_offsets #> ARRAY[e.topic, e.partition::text] IS NOT NULL
            THEN jsonb_build_object(e.partition, d.kafka_offsets #> ARRAY[e.topic, e.partition::text]) END AS kafka_offsets,
    o.batch_id,
    b.created_at AS committed_at,
    d.committed_at - b.created_at AS lag,
    e.value,
    coalesce(e.key, convert_to(o.session_key, 'UTF8')) AS key,
    e.headers,
    d.epoch,
    d.lane,
    d.seq AS delivery_seq
FROM outbox.delivery d
JOIN outbox.lane_epoch ep ON ep.epoch = d.epoch
CROSS JOIN LATERAL (
    SELECT r.* FROM outbox.session_output r
    WHERE r.lane = d.lane AND r.batch_id >= ep.from_batch
      AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, r.batch_id, r.session_key)
      AND NOT EXISTS (
          SELECT FROM outbox.parked p
          WHERE p.session_key = r.session_key AND p.batch_id = r.batch_id AND p.after_seq < d.seq)
    OFFSET 0
) o
JOIN outbox.batch b ON b.batch_id = o.batch_id
CROSS JOIN LATERAL (
    SELECT t.*, sum(t.outputs) OVER (ORDER BY t.n) - t.outputs AS before
    FROM unnest(o.session_topic_ids, o.session_partitions, o.session_ends, o.session_outputs)
         WITH ORDINALITY AS t (topic_id, partition, end_offset, outputs, n)
) s
JOIN LATERAL unnest(o.topics, o.keys, o."values", o.headers, o.partitions) WITH ORDINALITY AS e (topic, key, value, headers, partition, n)
    ON e.n > s.before AND e.n <= s.before + s.outputs
WHERE d.kind = 'delivery' AND d.sessions > 0;

CREATE OR REPLACE VIEW outbox.audit_topic_minute AS
SELECT m.minute, t.topic, t.output_events, t.deliveries
FROM (SELECT min(d.committed_at) AS first, max(d.committed_at) AS last FROM outbox.delivery d) span
CROSS JOIN LATERAL generate_series(date_trunc('minute', span.first), span.last, interval '1 minute') AS m (minute)
CROSS JOIN LATERAL (
    SELECT c.topic, sum(c.events)::bigint AS output_events, count(*) AS deliveries
    FROM outbox.delivery d
    CROSS JOIN LATERAL (
        SELECT e.topic, count(*) AS events
        FROM outbox.session_output o
        CROSS JOIN LATERAL unnest(o.topics) AS e (topic)
        WHERE o.lane = d.lane
          AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key)
          AND NOT EXISTS (
              SELECT FROM outbox.parked p
              WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id AND p.after_seq < d.seq)
        GROUP BY e.topic
    ) c
    WHERE d.committed_at >= m.minute AND d.committed_at < m.minute + interval '1 minute' AND d.kind = 'delivery' AND d.sessions > 0
    GROUP BY c.topic
) t;

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
    WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id AND p.after_seq < d.seq)
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

-- As before, but a process that withdrew is not taken for one that was killed.
CREATE OR REPLACE VIEW outbox.audit_service AS
SELECT
    'spark-job' AS service,
    CASE WHEN w.run_id IS NULL THEN 'none'
         WHEN EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = w.backend_pid AND (a.backend_start = w.backend_start) IS NOT FALSE) THEN 'running'
         ELSE 'gone' END AS state,
    w.host,
    w.pid,
    w.started_at,
    w.heartbeat_at AS seen_at,
    'held back: ' || w.held_back_because AS detail
FROM outbox.writer w
UNION ALL
SELECT
    'publisher',
    CASE WHEN w.withdrawn THEN 'withdrawn' WHEN w.connected AND p.alive_until >= now() THEN 'running' ELSE 'gone' END,
    p.host,
    p.pid,
    p.started_at,
    coalesce(p.heartbeat_at, least(p.alive_until, now())),
    CASE WHEN w.withdrawn THEN 'takes no lanes: a lane of it hangs, or all of its lanes fail while other processes deliver; its /healthz says which' END
FROM outbox.publisher_process p
CROSS JOIN LATERAL (
    SELECT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = p.backend_pid AND (a.backend_start = p.backend_start) IS NOT FALSE) AS connected
    OFFSET 0
) c
-- A heartbeat that leaves the lanes to the other processes ends the process's time at once.
CROSS JOIN LATERAL (SELECT c.connected, c.connected AND coalesce(p.heartbeat_at >= p.alive_until, false) AS withdrawn) w
WHERE p.ended_at IS NULL AND p.alive_until > now() - interval '1 day'
UNION ALL
SELECT 'publisher', 'none', NULL, NULL, NULL, NULL, NULL
WHERE NOT EXISTS (SELECT FROM outbox.publisher_process p WHERE p.ended_at IS NULL AND p.alive_until > now() - interval '1 day');
COMMENT ON COLUMN outbox.audit_service.state IS 'running; withdrawn: a publisher that lives and takes no lanes; gone: killed, or its machine is; none: nobody runs it';
COMMENT ON COLUMN outbox.audit_service.detail IS 'why the job holds itself back, or why a publisher takes no lanes; NULL: neither';

-- A retry of dead letters looks for their events window by window of the partitions that are kept.
GRANT SELECT ON outbox.output_partition TO outbox_writer;
