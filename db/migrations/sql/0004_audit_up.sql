-- Audit with SQL alone. docs/audit.md has a question and an example for each view; docs/decisions/0010-audit-views.md says why they are as they are.
-- Three kinds: what services and views share (epoch_range, lane_position, output_partition, output_row), the checks that `publisher audit` and
-- audit_reconciliation have in common (check_...), and the views for people (audit_...).
-- Functions have no string bodies: names are resolved once, here, and not by whoever's search_path.

-- Which deliveries may hold a batch: they are few, where the key (epoch, lane, seq) would have all of the lane read. A resume may lead backwards.
-- Postgres 15 to 17 build it in 10 s for a million deliveries. IF NOT EXISTS: it may have been built before, CONCURRENTLY (docs/upgrade.md).
SET LOCAL statement_timeout = 0;
CREATE INDEX IF NOT EXISTS delivery_batches_idx ON outbox.delivery USING gist (int8range(least(after_batch, to_batch), to_batch, '[]'));

-- Whether a row is between two cursors, after the first and not after the second. The planner inlines it, so that indexes serve it.
CREATE FUNCTION outbox.cursor_covers(after_batch bigint, after_key text, to_batch bigint, to_key text, batch_id bigint, session_key text)
RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN batch_id >= after_batch AND batch_id <= to_batch
        AND (batch_id, session_key COLLATE "C") > (after_batch + (after_key IS NULL)::integer, coalesce(after_key, ''))
        AND (to_key IS NULL OR (batch_id, session_key COLLATE "C") <= (to_batch, to_key));

-- A cursor in words, as the services' logs have it.
CREATE FUNCTION outbox.cursor_text(batch_id bigint, session_key text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 'batch ' || batch_id || coalesce(' at ''' || session_key || '''', '');

----------------------------------------------------------------------------------------------------------------------------------------------
-- Shared by services and views

CREATE VIEW outbox.epoch_range AS
SELECT e.epoch, e.from_batch, lead(e.from_batch) OVER (ORDER BY e.epoch) - 1 AS to_batch, e.lanes, e.created_at
FROM outbox.lane_epoch e;

-- Also the lanes that no publisher has run yet. The subqueries of `held` cost nothing where it is not asked for.
CREATE VIEW outbox.lane_position AS
SELECT
    e.epoch,
    n.lane,
    e.from_batch,
    e.to_batch,
    coalesce(l.seq, 0) AS seq,
    coalesce(l.cursor_batch, 0) AS cursor_batch,
    l.cursor_key,
    greatest(e.from_batch - 1, coalesce(l.cursor_batch - (l.cursor_key IS NOT NULL)::integer, 0)) AS through_batch,
    coalesce(l.cursor_batch = e.to_batch AND l.cursor_key IS NULL, false) AS ended,
    least((SELECT coalesce(max(b.batch_id), 0) FROM outbox.batch b), e.to_batch) AS last_batch,
    coalesce(l.sessions, 0) AS sessions,
    coalesce(l.events, 0) AS events,
    l.lease_holder,
    l.lease_until,
    -- A backend older than the server: nobody had the time to come back yet. The start of another role's backend is hidden; then its pid must do.
    coalesce(l.lease_until >= now() AND (
        l.lease_backend_start < pg_postmaster_start_time()
        OR EXISTS (
            SELECT FROM pg_stat_activity a
            WHERE a.pid = l.lease_backend_pid AND (a.backend_start = l.lease_backend_start) IS NOT FALSE
        )
    ), false) AS held,
    l.stopped_reason,
    l.stopped_why,
    l.mirrored_at
FROM outbox.epoch_range e
CROSS JOIN LATERAL generate_series(0, e.lanes - 1) AS n (lane)
LEFT JOIN outbox.lane l ON l.epoch = e.epoch AND l.lane = n.lane;

-- Only the tables that hold ranges of batches, which ensure_partitions made.
CREATE VIEW outbox.output_partition AS
SELECT c.oid AS relation, c.relname AS name, r.bounds[1]::bigint AS from_batch, r.bounds[2]::bigint - 1 AS to_batch,
       i.inhdetachpending AS detaching
FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid
CROSS JOIN LATERAL regexp_match(pg_get_expr(c.relpartbound, c.oid), '^FOR VALUES FROM \(''(\d+)''\) TO \(''(\d+)''\)$') AS r (bounds)
WHERE i.inhparent = 'outbox.session_output'::regclass AND r.bounds IS NOT NULL;

-- The rows of a range of batches, of all lanes. No index leads with the batch: lane by lane the cursor's does, where Postgres 15 to 17 would read a
-- whole partition for each range. The second half is for rows whose lane no epoch has. It is inlined where it stands.
CREATE FUNCTION outbox.batch_rows(from_batch bigint, to_batch bigint) RETURNS SETOF outbox.session_output
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT o.* FROM outbox.session_output o
    WHERE o.lane = ANY (ARRAY(SELECT generate_series(0, (SELECT coalesce(max(e.lanes), 0) FROM outbox.lane_epoch e) - 1)))
      AND o.batch_id >= batch_rows.from_batch AND o.batch_id <= batch_rows.to_batch
    UNION ALL
    SELECT o.* FROM outbox.session_output o
    WHERE o.lane >= (SELECT coalesce(max(e.lanes), 0) FROM outbox.lane_epoch e)
      AND o.batch_id >= batch_rows.from_batch AND o.batch_id <= batch_rows.to_batch;
END;

-- A row of session_output and where it stands.
CREATE VIEW outbox.output_row AS
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
     WHERE d.epoch = ep.epoch AND d.lane = o.lane AND d.kind = 'delivery' AND (p.created_at <= d.committed_at) IS NOT TRUE
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

-- As before, from output_row; with the epoch, the delivery and whether it was skipped.
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
    o.delivery_state,
    o.committed_at,
    o.batch_kind,
    o.generation,
    o.epoch,
    o.delivery_seq,
    o.skipped
FROM outbox.output_row o
CROSS JOIN LATERAL (
    SELECT t.*, sum(t.outputs) OVER (ORDER BY t.n) - t.outputs AS before
    FROM unnest(o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends,
                o.session_started_ms, o.session_ended_ms, o.session_outputs)
         WITH ORDINALITY AS t (topic_id, partition, start_offset, end_offset, started_ms, ended_ms, outputs, n)
) s
JOIN LATERAL unnest(o.topics, o.keys, o."values", o.headers, o.partitions, o.timestamps_ms)
    WITH ORDINALITY AS e (topic, key, value, headers, partition, timestamp_ms, n)
    ON e.n > s.before AND e.n <= s.before + s.outputs;

----------------------------------------------------------------------------------------------------------------------------------------------
-- Checks: what must not be. `publisher audit` takes its ranges of batches from them, audit_reconcile puts them together.

-- Breaks of the ledger. batch_id: the batch that does not fit what is before it.
CREATE VIEW outbox.audit_ledger AS
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
    SELECT greatest(kept.batch_id, coalesce((SELECT max(f.batch_id) FROM outbox.batch f WHERE f.batch_id < b.batch_id), 0) + 1) AS first_missing
) g
WHERE NOT EXISTS (SELECT FROM outbox.batch f WHERE f.batch_id = b.batch_id - 1)
UNION ALL
-- Each stream row continues the one before it in its generation: the next Spark batch from where the former ended, or a further part of it.
-- A partition that was new then begins at 0. Below the rows that are kept, retention leaves single ledger rows behind: only where none is
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
            SELECT ': ' || string_agg(t.id || '/' || p.partition || ' from ' || p.first || ', not '
                                      || coalesce(f.end_offsets #>> ARRAY[t.id, p.partition], '0'), ', ' ORDER BY t.id, p.partition)
            FROM jsonb_each(b.start_offsets) AS t (id, partitions)
            CROSS JOIN LATERAL jsonb_each_text(t.partitions) AS p (partition, first)
            WHERE b.spark_batch <> f.spark_batch AND p.first::bigint <> coalesce((f.end_offsets #>> ARRAY[t.id, p.partition])::bigint, 0)), '')
FROM outbox.batch b
CROSS JOIN LATERAL (
    SELECT f.batch_id, f.spark_batch, f.part, f.start_offsets, f.end_offsets
    FROM outbox.batch f
    WHERE f.generation = b.generation AND (f.spark_batch, f.part) < (b.spark_batch, b.part)
    ORDER BY f.spark_batch DESC, f.part DESC
    LIMIT 1
) f
WHERE b.kind = 'stream'
  AND NOT (
    b.batch_id > f.batch_id
    AND CASE b.spark_batch
        WHEN f.spark_batch THEN b.part = f.part + 1 AND b.start_offsets = f.start_offsets AND b.end_offsets = f.end_offsets
        ELSE b.spark_batch = f.spark_batch + 1 AND b.part = 0 AND (b.start_offsets = f.end_offsets OR (
            b.start_offsets @> f.end_offsets AND NOT EXISTS (
                SELECT FROM jsonb_each(b.start_offsets) AS t (id, partitions)
                CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, first)
                WHERE p.first <> '0' AND f.end_offsets #> ARRAY[t.id, p.partition] IS NULL)))
    END)
  AND (f.batch_id >= (SELECT greatest(1, min(p.from_batch)) FROM outbox.output_partition p WHERE NOT p.detaching) - 1
       OR b.batch_id - f.batch_id - 1 <= (
           SELECT count(*) FROM outbox.batch k WHERE k.batch_id > f.batch_id AND k.batch_id < b.batch_id))
UNION ALL
-- What an open session begins with was read; what was read is done with; nothing is read backwards.
SELECT
    b.batch_id,
    'offsets',
    b.generation,
    NULL,
    NULL,
    t.id || '/' || p.partition || ': start ' || o.first || ', end ' || o.last || ', safe ' || o.safe || ', done ' || o.done
FROM outbox.batch b
CROSS JOIN LATERAL jsonb_each(b.end_offsets) AS t (id, partitions)
CROSS JOIN LATERAL jsonb_each_text(t.partitions) AS p (partition, last)
CROSS JOIN LATERAL (
    SELECT coalesce((b.start_offsets #>> ARRAY[t.id, p.partition])::bigint, 0) AS first, p.last::bigint AS last,
           coalesce((b.safe_offsets #>> ARRAY[t.id, p.partition])::bigint, 0) AS safe,
           coalesce((b.done_offsets #>> ARRAY[t.id, p.partition])::bigint, 0) AS done
) o
WHERE b.kind = 'stream' AND (o.first > o.last OR o.safe > o.last OR o.done < o.last)
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

-- What the ledger says of each batch of a range, and what its rows say, where these differ. A function and no view: the range must bound both
-- sides before they meet. Reads every row of the range, as it must: bytes are counted. in_ledger false: rows whose batch the ledger does not have.
CREATE FUNCTION outbox.check_batch_counts(from_batch bigint, to_batch bigint)
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

-- Partitions that are not there although rows in them were not delivered: retention would never have taken them. One row each. What a lane was
-- already through before a resume set it back may be gone. A row that is parked is check_parked's.
CREATE VIEW outbox.check_rows_kept AS
SELECT 'session_output_p' || lpad((b.batch_id / 10000)::text, 8, '0') AS partition, min(b.batch_id) AS from_batch, max(b.batch_id) AS to_batch,
       sum(b.sessions) AS sessions
FROM outbox.batch b
WHERE b.batch_id > (SELECT min(l.through_batch) FROM outbox.lane_position l WHERE NOT l.ended)
  AND b.sessions > 0
  AND (SELECT range_agg(int8range(p.from_batch, p.to_batch, '[]')) FROM outbox.output_partition p WHERE NOT p.detaching) @> b.batch_id IS NOT TRUE
  AND EXISTS (
    SELECT FROM outbox.lane_position l
    WHERE NOT l.ended AND l.through_batch < b.batch_id AND l.from_batch <= b.batch_id AND l.last_batch >= b.batch_id
      AND NOT EXISTS (
        SELECT FROM outbox.delivery d
        WHERE d.epoch = l.epoch AND d.lane = l.lane
          AND int8range(least(d.after_batch, d.to_batch), d.to_batch, '[]') && int8range(b.batch_id, NULL)))
GROUP BY b.batch_id / 10000;

-- Sessions of a range of batches that were emitted more than once for a revision. A row that was put aside was not, a requeue copies it.
CREATE FUNCTION outbox.check_emitted_twice(from_batch bigint, to_batch bigint)
RETURNS TABLE (session_key text, revision integer, topic_id text, partition integer, end_offset bigint, times bigint,
               first_batch bigint, last_batch bigint)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 10
BEGIN ATOMIC
    SELECT min(o.session_key), o.revision, s.topic_id, s.partition, s.end_offset, count(*), min(o.batch_id), max(o.batch_id)
    FROM outbox.batch_rows(check_emitted_twice.from_batch, check_emitted_twice.to_batch) o
    CROSS JOIN LATERAL unnest(o.session_topic_ids, o.session_partitions, o.session_ends) AS s (topic_id, partition, end_offset)
    WHERE NOT EXISTS (SELECT FROM outbox.parked p WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id)
    GROUP BY s.topic_id, s.partition, s.end_offset, o.revision
    HAVING count(*) > 1;
END;

-- Rows whose lane their epoch does not have: no publisher would ever send them. Lane by lane, because the index leads with the lane: the rows
-- that are right are not read. OFFSET 0 keeps the planner from joining them all by hash instead.
CREATE VIEW outbox.check_stray_row AS
WITH RECURSIVE most AS (
    SELECT coalesce(max(e.lanes), 0) AS lanes, coalesce(min(e.from_batch), 0) AS from_batch FROM outbox.lane_epoch e
), beyond (lane) AS (
    -- The lanes that no epoch ever had, each by a look at the index: a comparison would be taken for a third of the table.
    SELECT (SELECT min(r.lane) FROM outbox.session_output r WHERE r.lane >= most.lanes) FROM most
    UNION ALL
    SELECT (SELECT min(r.lane) FROM outbox.session_output r WHERE r.lane > b.lane) FROM beyond b WHERE b.lane IS NOT NULL
)
SELECT o.batch_id, o.session_key, o.lane, e.epoch, e.lanes
FROM most
CROSS JOIN outbox.epoch_range e
CROSS JOIN LATERAL generate_series(e.lanes, most.lanes - 1) AS n (lane)
CROSS JOIN LATERAL (
    SELECT r.batch_id, r.session_key, r.lane FROM outbox.session_output r
    WHERE r.lane = n.lane AND r.batch_id >= e.from_batch AND r.batch_id <= coalesce(e.to_batch, 9223372036854775807)
    OFFSET 0
) o
UNION ALL
SELECT o.batch_id, o.session_key, o.lane, e.epoch, e.lanes
FROM beyond b
CROSS JOIN LATERAL (
    SELECT r.batch_id, r.session_key, r.lane FROM outbox.session_output r WHERE r.lane = b.lane OFFSET 0
) o
LEFT JOIN outbox.epoch_range e ON o.batch_id >= e.from_batch AND o.batch_id <= coalesce(e.to_batch, 9223372036854775807)
WHERE b.lane IS NOT NULL
UNION ALL
SELECT o.batch_id, o.session_key, o.lane, NULL, NULL
FROM most
CROSS JOIN LATERAL generate_series(0, most.lanes - 1) AS n (lane)
CROSS JOIN LATERAL (
    SELECT r.batch_id, r.session_key, r.lane FROM outbox.session_output r WHERE r.lane = n.lane AND r.batch_id < most.from_batch OFFSET 0
) o;

-- Breaks of a lane's chain of deliveries: each is the next seq, from where the former ended. A resume leads elsewhere knowingly, after
-- deliveries that a restored database may have forgotten. The first one that is kept may be any, unless nothing was ever pruned.
CREATE VIEW outbox.check_delivery_chain AS
SELECT
    d.epoch,
    d.lane,
    d.seq,
    d.after_batch,
    d.to_batch,
    greatest(1, d.seq - f.seq - 1) AS missing,
    CASE WHEN d.seq <> f.seq + 1 THEN 'after delivery ' || f.seq || ' comes ' || d.seq
         ELSE 'delivery ' || d.seq || ' begins after ' || outbox.cursor_text(d.after_batch, d.after_key) || ', the one before it ended with '
              || outbox.cursor_text(f.to_batch, f.to_key) END AS detail
FROM outbox.delivery d
JOIN outbox.lane_epoch e ON e.epoch = d.epoch
LEFT JOIN LATERAL (
    SELECT k.seq, k.to_batch, k.to_key FROM outbox.delivery k
    WHERE k.epoch = d.epoch AND k.lane = d.lane AND k.seq < d.seq
    ORDER BY k.seq DESC
    LIMIT 1
) former ON true
CROSS JOIN LATERAL (
    SELECT coalesce(former.seq, (SELECT 0 FROM outbox.output_partition p WHERE NOT p.detaching AND p.from_batch <= 1)) AS seq,
           CASE WHEN former.seq IS NOT NULL THEN former.to_batch WHEN d.seq = 1 THEN e.from_batch - 1 END AS to_batch,
           former.to_key
) f
WHERE d.kind = 'delivery'
  AND (d.seq <> f.seq + 1
       OR (d.after_batch IS NOT NULL AND f.to_batch IS NOT NULL AND (d.after_batch, d.after_key) IS DISTINCT FROM (f.to_batch, f.to_key)));

-- What each delivery says it sent, and the rows of its cursor range that were not put aside by then: one that a resume led back to may be parked
-- after it was sent. Both bounds of batch_id prune.
CREATE VIEW outbox.check_delivery_counts AS
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
          WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id AND p.created_at <= d.committed_at)
) r
WHERE d.kind = 'delivery' AND d.after_batch IS NOT NULL;

-- The mirror is the newest delivery; where all deliveries are kept, its sums are theirs. A resume sets them. One row a lane that is not so.
CREATE VIEW outbox.check_mirror AS
SELECT l.epoch, l.lane, w.detail
FROM outbox.lane l
LEFT JOIN outbox.batch b ON b.batch_id = l.cursor_batch
LEFT JOIN LATERAL (
    SELECT d.seq, d.to_batch, d.to_key FROM outbox.delivery d
    WHERE d.epoch = l.epoch AND d.lane = l.lane
    ORDER BY d.seq DESC LIMIT 1
) n ON true
LEFT JOIN LATERAL (
    SELECT CASE WHEN bool_or(d.kind = 'resume') THEN 0 ELSE min(d.seq) END AS first_seq, sum(d.sessions) AS sessions, sum(d.events) AS events
    FROM outbox.delivery d
    WHERE d.epoch = l.epoch AND d.lane = l.lane
) s ON true
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN l.seq <> coalesce(n.seq, 0)
            THEN 'the mirror is at transaction ' || l.seq || ', the newest delivery is ' || coalesce(n.seq::text, 'missing')
        WHEN (l.cursor_batch, l.cursor_key) IS DISTINCT FROM (n.to_batch, n.to_key) AND n.seq IS NOT NULL
            THEN 'the mirror is at ' || outbox.cursor_text(l.cursor_batch, l.cursor_key) || ', the newest delivery at '
                 || outbox.cursor_text(n.to_batch, n.to_key)
        WHEN l.cursor_batch > 0 AND b.commit_id IS DISTINCT FROM l.cursor_commit_id
            THEN 'the mirror is at ' || outbox.cursor_text(l.cursor_batch, l.cursor_key) || ', and the ledger has '
                 || CASE WHEN b.commit_id IS NULL THEN 'no such batch' ELSE 'another batch of this number' END
        WHEN s.first_seq = 1 AND (l.sessions, l.events) IS DISTINCT FROM (s.sessions, s.events)
            THEN 'the mirror counts ' || l.sessions || ' sessions with ' || l.events || ' events, its deliveries ' || s.sessions || ' with '
                 || s.events
    END AS detail
) w
WHERE w.detail IS NOT NULL;

-- Rows that were put aside: kept until they are discarded, and requeued as they were. One row each that is not so.
CREATE VIEW outbox.check_parked AS
SELECT p.batch_id, p.session_key, p.epoch, p.lane, p.requeued_batch, w.detail
FROM outbox.parked p
LEFT JOIN outbox.session_output o ON o.session_key = p.session_key AND o.batch_id = p.batch_id
LEFT JOIN outbox.session_output c ON c.session_key = p.session_key AND c.batch_id = p.requeued_batch
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
WHERE w.detail IS NOT NULL
  AND (p.state = 'parked' OR EXISTS (
        SELECT FROM outbox.output_partition k WHERE NOT k.detaching AND p.requeued_batch >= k.from_batch AND p.requeued_batch <= k.to_batch));

----------------------------------------------------------------------------------------------------------------------------------------------
-- For people

CREATE VIEW outbox.audit_session AS
SELECT
    o.session_key,
    o.batch_id,
    coalesce(g.topics ->> s.topic_id,
             (SELECT x.topics ->> s.topic_id FROM outbox.generation x WHERE x.topics ? s.topic_id ORDER BY x.generation DESC LIMIT 1)) AS topic,
    s.partition,
    s.start_offset,
    s.end_offset,
    to_timestamp(s.started_ms / 1000.0) AS started_at,
    to_timestamp(s.ended_ms / 1000.0) AS ended_at,
    s.events AS input_events,
    s.outputs AS output_events,
    o.batch_kind,
    o.generation,
    o.revision,
    o.committed_at,
    CASE WHEN o.delivery_state = 'delivered' AND d.seq IS NULL AND o.skipped THEN 'skipped' ELSE o.delivery_state END AS state,
    d.committed_at AS delivered_at,
    o.epoch,
    o.lane,
    d.seq AS delivery_seq,
    s.topic_id
FROM outbox.output_row o
JOIN outbox.generation g ON g.generation = o.generation
LEFT JOIN outbox.delivery d ON d.epoch = o.epoch AND d.lane = o.lane AND d.seq = o.delivery_seq
CROSS JOIN LATERAL unnest(o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends, o.session_started_ms,
                          o.session_ended_ms, o.session_events, o.session_outputs)
    AS s (topic_id, partition, start_offset, end_offset, started_ms, ended_ms, events, outputs);

CREATE VIEW outbox.audit_session_output AS
SELECT
    e.session_key,
    e.batch_id,
    e.outbox_id,
    e.revision,
    e.topic,
    CASE WHEN e.target_partition IS NULL THEN d.kafka_offsets -> e.topic
         WHEN d.kafka_offsets #> ARRAY[e.topic, e.target_partition::text] IS NOT NULL
            THEN jsonb_build_object(e.target_partition, d.kafka_offsets #> ARRAY[e.topic, e.target_partition::text]) END AS kafka_offsets,
    CASE WHEN e.delivery_state = 'delivered' AND d.seq IS NULL AND e.skipped THEN 'skipped' ELSE e.delivery_state END AS state,
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
FROM outbox.event e
LEFT JOIN outbox.delivery d ON d.epoch = e.epoch AND d.lane = e.lane AND d.seq = e.delivery_seq;

-- From the deliveries of a time to their rows. OFFSET 0: each delivery's rows are looked up by lane and batch (session_output_cursor_idx), or
-- the planner would join all rows by hash. From a row to its deliveries: audit_session_output.
CREATE VIEW outbox.audit_sent AS
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
          WHERE p.session_key = r.session_key AND p.batch_id = r.batch_id AND p.created_at <= d.committed_at)
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

CREATE VIEW outbox.audit_topic_minute AS
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
              WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id AND p.created_at <= d.committed_at)
        GROUP BY e.topic
    ) c
    WHERE d.committed_at >= m.minute AND d.committed_at < m.minute + interval '1 minute' AND d.kind = 'delivery' AND d.sessions > 0
    GROUP BY c.topic
) t;

CREATE VIEW outbox.audit_minute AS
SELECT m.minute, b.batches, b.input_events, b.sessions, b.output_events, b.dead_letters, d.deliveries, d.sessions AS delivered_sessions,
       d.events AS delivered_events, d.worst_lag_s
FROM (
    SELECT least((SELECT min(b.created_at) FROM outbox.batch b), (SELECT min(d.committed_at) FROM outbox.delivery d)) AS first,
           greatest((SELECT max(b.created_at) FROM outbox.batch b), (SELECT max(d.committed_at) FROM outbox.delivery d)) AS last
) span
CROSS JOIN LATERAL generate_series(date_trunc('minute', span.first), span.last, interval '1 minute') AS m (minute)
CROSS JOIN LATERAL (
    -- As `spark-job status` counts: a Spark batch once, whatever its parts, and no copies of parked rows.
    SELECT count(*) AS commits, count(DISTINCT (b.generation, b.spark_batch)) FILTER (WHERE b.kind = 'stream') AS batches,
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

CREATE VIEW outbox.audit_undelivered AS
SELECT
    l.epoch,
    l.lane,
    CASE WHEN l.stopped_reason IS NOT NULL THEN 'stopped'
         WHEN l.held THEN 'running'
         WHEN l.epoch > (SELECT min(f.epoch) FROM outbox.lane_position f WHERE NOT f.ended) THEN 'waiting'
         ELSE 'nobody' END AS publisher,
    b.batch_id AS oldest_batch,
    b.created_at AS oldest_committed_at,
    now() - b.created_at AS oldest_age,
    l.last_batch - greatest(l.cursor_batch, l.from_batch - 1) AS batches_behind,
    (SELECT count(*) FROM outbox.session_output o
     WHERE o.lane = l.lane AND o.batch_id >= greatest(l.cursor_batch, l.from_batch) AND o.batch_id <= l.last_batch
       AND (o.batch_id > l.cursor_batch OR o.session_key > l.cursor_key)) AS waiting_rows,
    l.stopped_reason
FROM outbox.lane_position l
CROSS JOIN LATERAL (
    SELECT o.batch_id FROM outbox.session_output o
    WHERE o.lane = l.lane AND o.batch_id >= greatest(l.cursor_batch, l.from_batch) AND o.batch_id <= l.last_batch
      AND (o.batch_id > l.cursor_batch OR o.session_key > l.cursor_key)
    ORDER BY o.batch_id, o.session_key
    LIMIT 1
) oldest
JOIN outbox.batch b ON b.batch_id = oldest.batch_id
WHERE NOT l.ended;

-- OFFSET 0 and the subquery: each lane's rows from its cursor on, or the planner would ask every batch of the ledger for rows of any lane.
CREATE VIEW outbox.audit_undelivered_row AS
SELECT l.epoch, l.lane, o.batch_id, o.session_key, o.committed_at, now() - o.committed_at AS age, o.sessions, o.output_events
FROM outbox.lane_position l
CROSS JOIN LATERAL (
    SELECT r.batch_id, r.session_key, cardinality(r.session_ends) AS sessions, cardinality(r.topics) AS output_events,
           (SELECT b.created_at FROM outbox.batch b WHERE b.batch_id = r.batch_id) AS committed_at
    FROM outbox.session_output r
    WHERE r.lane = l.lane AND r.batch_id >= greatest(l.cursor_batch, l.from_batch) AND r.batch_id <= l.last_batch
      AND (r.batch_id > l.cursor_batch OR r.session_key > l.cursor_key)
    OFFSET 0
) o
WHERE NOT l.ended;

CREATE VIEW outbox.audit_dead_letter AS
SELECT d.dead_letter_id, d.created_at, d.reason, d.state, d.session_key, d.detail, d.topic, d.partition, d.first_offset, d.last_offset,
       d.closing_offset, d.event_count AS events, cardinality(d.event_values) AS kept_events, outbox.try_json(d.event_values[1]) AS first_event,
       d.batch_id, d.generation, d.revision, d.resolved_batch, CASE WHEN d.state <> 'open' THEN d.state_changed_at END AS ended_at, d.topic_id
FROM outbox.dead_letter d;

CREATE VIEW outbox.audit_dead_letter_reason AS
SELECT d.reason, d.state, count(*) AS letters, sum(d.event_count)::bigint AS events, min(d.created_at) AS oldest, max(d.created_at) AS newest
FROM outbox.dead_letter d
GROUP BY d.reason, d.state;

-- Who is at work. A service that nobody runs has a row, too. What was killed is remembered for a day.
CREATE VIEW outbox.audit_service AS
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
    CASE WHEN p.alive_until >= now()
              AND EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = p.backend_pid AND (a.backend_start = p.backend_start) IS NOT FALSE)
         THEN 'running' ELSE 'gone' END,
    p.host,
    p.pid,
    p.started_at,
    least(p.alive_until, now()),
    NULL
FROM outbox.publisher_process p
WHERE p.ended_at IS NULL AND p.alive_until > now() - interval '1 day'
UNION ALL
SELECT 'publisher', 'none', NULL, NULL, NULL, NULL, NULL
WHERE NOT EXISTS (SELECT FROM outbox.publisher_process p WHERE p.ended_at IS NULL AND p.alive_until > now() - interval '1 day');

-- How far the input is dealt with: what Kafka has beyond read_to was not judged yet, what lies from open_from on may belong to open sessions.
CREATE VIEW outbox.audit_input AS
SELECT
    coalesce(g.topics ->> t.id, t.id) AS topic,
    p.partition::integer AS partition,
    p.read_to::bigint AS read_to,
    nullif((b.safe_offsets #>> ARRAY[t.id, p.partition])::bigint, p.read_to::bigint) AS open_from,
    b.batch_id AS newest_batch,
    b.created_at AS committed_at,
    now() - b.created_at AS age,
    t.id AS topic_id
FROM outbox.generation g
CROSS JOIN LATERAL (
    SELECT n.* FROM outbox.batch n WHERE n.generation = g.generation AND n.kind = 'stream' ORDER BY n.spark_batch DESC, n.part DESC LIMIT 1
) b
CROSS JOIN LATERAL jsonb_each(b.end_offsets) AS t (id, partitions)
CROSS JOIN LATERAL jsonb_each_text(t.partitions) AS p (partition, read_to)
WHERE g.generation = (SELECT max(n.generation) FROM outbox.generation n);

CREATE VIEW outbox.audit_replay AS
SELECT
    r.replay_id,
    CASE WHEN r.state = 'running' AND NOT h.held THEN 'interrupted' ELSE r.state END AS state,
    r.created_at AS began_at,
    CASE WHEN r.state IN ('done', 'cancelled') THEN r.state_changed_at END AS ended_at,
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
FROM outbox.replay r
CROSS JOIN LATERAL (
    SELECT coalesce(r.lease_until >= now() AND EXISTS (
        SELECT FROM pg_stat_activity a
        WHERE a.pid = r.lease_backend_pid AND (a.backend_start = r.lease_backend_start) IS NOT FALSE), false) AS held
) h;

CREATE VIEW outbox.audit_replayed AS
SELECT
    o.session_key,
    o.batch_id,
    r.replay_id,
    r.replay_uuid,
    r.created_at AS began_at,
    CASE WHEN r.state IN ('done', 'cancelled') THEN r.state_changed_at END AS ended_at,
    (SELECT count(*) FROM unnest(o.topics) AS t (topic) WHERE r.topics IS NULL OR t.topic = ANY (r.topics)) AS output_events,
    r.target_topic,
    r.target_servers,
    r.rows_skipped = 0 AS certain
FROM outbox.replay r
JOIN outbox.session_output o
    ON o.batch_id >= r.from_batch AND o.batch_id <= r.to_batch
    AND (r.state = 'done' OR o.batch_id < r.cursor_batch
         OR (o.batch_id = r.cursor_batch AND (r.cursor_key IS NULL OR o.session_key <= r.cursor_key)))
WHERE r.rows_sent > 0
  AND CASE WHEN r.topics IS NULL THEN cardinality(o.topics) > 0 ELSE o.topics && r.topics END
  AND (NOT r.only_keys OR EXISTS (SELECT FROM outbox.replay_key k WHERE k.replay_id = r.replay_id AND k.session_key = o.session_key))
  AND NOT EXISTS (SELECT FROM outbox.parked p WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id);

CREATE VIEW outbox.audit_history AS
SELECT
    o.session_key,
    b.created_at AS at,
    -- Reissued: an earlier generation was done with it. Later sessions have the revision too.
    CASE WHEN b.kind = 'retry' THEN 'retried'
         WHEN o.revision > 0 AND EXISTS (
            SELECT FROM outbox.generation g
            CROSS JOIN LATERAL (
                SELECT n.done_offsets FROM outbox.batch n
                WHERE n.generation = g.generation AND n.kind = 'stream' AND n.spark_batch IS NOT NULL
                ORDER BY n.spark_batch DESC LIMIT 1
            ) n
            WHERE g.generation < b.generation AND (n.done_offsets #>> ARRAY[s.topic_id, s.partition::text])::bigint > s.end_offset)
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
    CASE d.kind WHEN 'resume' THEN 'passed over by resume ' || d.seq || ' of epoch ' || d.epoch || ', lane ' || d.lane || coalesce(': ' || d.note, '')
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
SELECT p.session_key, p.state_changed_at, p.state, coalesce('goes out as batch ' || p.requeued_batch, 'will not go out'), p.batch_id, b.generation, NULL
FROM outbox.parked p
LEFT JOIN outbox.batch b ON b.batch_id = p.batch_id
WHERE p.state <> 'parked'
UNION ALL
SELECT d.session_key, d.created_at, 'dead-lettered',
       d.reason || ', letter ' || d.dead_letter_id || ', ' || d.event_count || ' events ' || d.topic || '/' || d.partition || '/' || d.first_offset
           || ' to ' || d.last_offset || ': ' || (regexp_match(rtrim(d.detail, E'\n'), '[^\n]*$'))[1],
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
           || coalesce(', to topic ' || r.target_topic, '') || CASE WHEN r.certain THEN '' ELSE ', unless it was among those it left out' END,
       r.batch_id, NULL, NULL
FROM outbox.audit_replayed r;

-- Everything that must not be. NULL: no bound. Inlined, so that a check_name that is asked for leaves most other checks out.
CREATE FUNCTION outbox.audit_reconcile(from_batch bigint DEFAULT NULL, to_batch bigint DEFAULT NULL)
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

CREATE VIEW outbox.audit_reconciliation AS
SELECT r.check_name, r.severity, r.epoch, r.lane, r.batch_id, r.session_key COLLATE "C" AS session_key, r.detail
FROM outbox.audit_reconcile() r;

----------------------------------------------------------------------------------------------------------------------------------------------

REVOKE ALL ON FUNCTION outbox.cursor_covers(bigint, text, bigint, text, bigint, text), outbox.cursor_text(bigint, text),
    outbox.batch_rows(bigint, bigint), outbox.check_batch_counts(bigint, bigint), outbox.check_emitted_twice(bigint, bigint),
    outbox.audit_reconcile(bigint, bigint) FROM PUBLIC;

-- The services get what their own statements read: event and output_row ask cursor_covers on behalf of whoever reads them.
GRANT EXECUTE ON FUNCTION outbox.cursor_covers(bigint, text, bigint, text, bigint, text), outbox.cursor_text(bigint, text)
    TO outbox_writer, outbox_publisher, outbox_auditor;
GRANT SELECT ON outbox.epoch_range, outbox.lane_position TO outbox_writer, outbox_publisher, outbox_auditor;
GRANT SELECT ON outbox.output_partition, outbox.audit_ledger, outbox.check_rows_kept, outbox.check_stray_row, outbox.check_delivery_chain,
    outbox.check_delivery_counts, outbox.check_mirror, outbox.check_parked TO outbox_publisher, outbox_auditor;
GRANT EXECUTE ON FUNCTION outbox.batch_rows(bigint, bigint), outbox.check_batch_counts(bigint, bigint), outbox.check_emitted_twice(bigint, bigint)
    TO outbox_publisher, outbox_auditor;
GRANT SELECT ON outbox.output_row, outbox.audit_session, outbox.audit_session_output, outbox.audit_sent, outbox.audit_topic_minute,
    outbox.audit_service, outbox.audit_input,
    outbox.audit_minute, outbox.audit_undelivered, outbox.audit_undelivered_row, outbox.audit_dead_letter, outbox.audit_dead_letter_reason,
    outbox.audit_replay, outbox.audit_replayed, outbox.audit_history, outbox.audit_reconciliation TO outbox_auditor;
GRANT EXECUTE ON FUNCTION outbox.audit_reconcile(bigint, bigint) TO outbox_auditor;
