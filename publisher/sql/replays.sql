-- Replays: delivered rows that are sent once more.

-- name: range
-- The bounds of a replay: the ledger's newest batch; the last batch that every lane has delivered completely; the batches whose rows are
-- kept, by partition (first, and last exclusive); the first batch committed at `since` or later; the last batch committed before `until`.
-- Between these two lies every batch of that time, even if the clock stepped back. A resume that has not ended may have set its lane back
-- in Kafka to the beginning of its epoch.
SELECT
    (SELECT coalesce(max(b.batch_id), 0) FROM outbox.batch b),
    (SELECT coalesce(min(CASE WHEN p.stopped_why = 'resuming' THEN p.from_batch - 1 ELSE p.through_batch END), 0)
     FROM outbox.lane_position p
     WHERE p.stopped_why = 'resuming' OR NOT p.ended),
    (SELECT coalesce(array_agg(ARRAY[p.from_batch, p.to_batch + 1] ORDER BY p.from_batch), '{}')
     FROM outbox.output_partition p
     WHERE NOT p.detaching),
    (SELECT min(b.batch_id) FROM outbox.batch b WHERE b.created_at >= m.since),
    (SELECT max(b.batch_id) FROM outbox.batch b WHERE b.created_at < m.until)
FROM (SELECT
    coalesce(%(since)s::timestamptz, now() - make_interval(secs => %(since_age_s)s::double precision)) AS since,
    coalesce(%(until)s::timestamptz, now() - make_interval(secs => %(until_age_s)s::double precision)) AS until
) m

-- name: count
-- For each topic: rows, events, bytes of values; then rows and sessions, counting each row only for its first topic.
SELECT e.topic, count(*), sum(e.events)::bigint, sum(e.bytes)::bigint, count(*) FILTER (WHERE e.first),
       coalesce(sum(cardinality(o.session_ends)) FILTER (WHERE e.first), 0)::bigint
FROM outbox.session_output o
CROSS JOIN LATERAL (
    SELECT u.topic, count(*) AS events, coalesce(sum(octet_length(u.value)), 0) AS bytes, row_number() OVER (ORDER BY u.topic) = 1 AS first
    FROM unnest(o.topics, o."values") AS u (topic, value)
    WHERE %(topics)s::text[] IS NULL OR u.topic = ANY (%(topics)s::text[])
    GROUP BY u.topic
) e
WHERE o.batch_id >= %(from_batch)s
  AND o.batch_id <= %(to_batch)s
  AND (%(keys)s::text[] IS NULL OR o.session_key = ANY (%(keys)s::text[]))
  AND NOT EXISTS (SELECT FROM outbox.parked p WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id)
GROUP BY e.topic

-- name: create
INSERT INTO outbox.replay (from_batch, to_batch, topics, only_keys, requested, target_topic, target_cluster_id, target_servers,
    events_per_second, rows_total, events_total, from_archive)
VALUES (%(from_batch)s, %(to_batch)s, %(topics)s, %(only_keys)s, %(requested)s, %(target_topic)s, %(target_cluster_id)s, %(target_servers)s,
    %(events_per_second)s, %(rows_total)s, %(events_total)s, %(from_archive)s)
RETURNING replay_id

-- name: copy_keys
COPY outbox.replay_key (replay_id, session_key) FROM STDIN

-- name: list
SELECT r.replay_id, r.replay_uuid, r.state, r.reason, r.from_batch, r.to_batch, r.topics, r.only_keys, r.requested, r.target_topic,
       r.target_cluster_id, r.target_servers, r.events_per_second, r.rows_total, r.events_total, r.lease_holder,
       coalesce(r.lease_until >= now() AND EXISTS (
           SELECT FROM pg_stat_activity a
           WHERE a.pid = r.lease_backend_pid AND (a.backend_start = r.lease_backend_start) IS NOT FALSE), false) AS held,
       r.seq, r.cursor_batch, r.cursor_key, r.rows_sent, r.events_sent, r.rows_skipped, r.measured_rate, r.created_at, r.state_changed_at,
       r.from_archive
FROM outbox.replay r
WHERE (%(replay_id)s::bigint IS NULL OR r.replay_id = %(replay_id)s)
  AND (%(all_states)s OR r.state IN ('running', 'paused'))
ORDER BY r.replay_id

-- name: change
-- Pauses or cancels a replay. The process that runs it sees that after its transaction.
UPDATE outbox.replay
SET state = %(state)s
WHERE replay_id = %(replay_id)s AND state IN ('running', 'paused') AND state <> %(state)s

-- name: set_rate
UPDATE outbox.replay SET events_per_second = %(events_per_second)s WHERE replay_id = %(replay_id)s

-- name: claim
UPDATE outbox.replay AS r
SET state = 'running',
    reason = NULL,
    lease_token = r.lease_token + 1,
    lease_holder = %(holder)s,
    -- Until this holder has fenced the former one, a transaction of the former one may still be committed.
    lease_until = greatest(r.lease_until, now() + make_interval(secs => %(lease_s)s)),
    lease_backend_pid = pg_backend_pid(),
    lease_backend_start = (SELECT a.backend_start FROM pg_stat_activity a WHERE a.pid = pg_backend_pid())
WHERE r.replay_id = %(replay_id)s
  AND (r.state = 'running' OR r.state = 'paused' AND %(paused_too)s)
  AND (
    r.lease_until IS NULL
    OR r.lease_until < now()
    OR r.lease_backend_pid = pg_backend_pid()
    -- If the backend belongs to another role, its start is hidden and only the pid is compared.
    OR NOT EXISTS (
        SELECT FROM pg_stat_activity a
        WHERE a.pid = r.lease_backend_pid AND (a.backend_start = r.lease_backend_start) IS NOT FALSE
    )
  )
RETURNING r.lease_token, r.seq, r.cursor_batch, r.cursor_key

-- name: renew
UPDATE outbox.replay
SET lease_until = now() + make_interval(secs => %(lease_s)s)
WHERE replay_id = %(replay_id)s AND lease_token = %(lease_token)s AND lease_holder IS NOT NULL
RETURNING state

-- name: hold
-- An erasure takes no row from a replay with a valid lease. Once the lease has expired, rows may have been erased, so it is not extended.
UPDATE outbox.replay
SET lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
WHERE replay_id = %(replay_id)s AND lease_token = %(lease_token)s AND lease_holder IS NOT NULL AND lease_until >= clock_timestamp()

-- name: mirror
-- In every state: even if the replay was paused meanwhile, its rows are sent.
UPDATE outbox.replay
SET seq = %(seq)s,
    cursor_batch = %(to_batch)s,
    cursor_key = %(to_key)s,
    rows_sent = %(rows_sent)s,
    events_sent = %(events_sent)s,
    rows_skipped = %(rows_skipped)s,
    measured_rate = coalesce(%(measured_rate)s, measured_rate),
    lease_until = now() + make_interval(secs => %(lease_s)s)
WHERE replay_id = %(replay_id)s AND lease_token = %(lease_token)s AND lease_holder IS NOT NULL AND seq = %(seq)s - 1
RETURNING state

-- name: finish
UPDATE outbox.replay
SET state = 'done', reason = %(reason)s
WHERE replay_id = %(replay_id)s AND lease_token = %(lease_token)s AND state = 'running'

-- name: leave
-- Nobody runs the replay any more, and any process may claim it. The lease stays, because Kafka may still commit rows that were read under
-- it.
UPDATE outbox.replay
SET lease_backend_pid = 0, lease_backend_start = NULL, reason = coalesce(%(reason)s, reason)
WHERE replay_id = %(replay_id)s AND lease_token = %(lease_token)s AND lease_holder IS NOT NULL

-- name: release
UPDATE outbox.replay
SET lease_holder = NULL, lease_until = NULL, lease_backend_pid = NULL, lease_backend_start = NULL, reason = coalesce(%(reason)s, reason)
WHERE replay_id = %(replay_id)s AND lease_token = %(lease_token)s

-- name: next
-- The next rows of all lanes, merged. Each lane's rows come from its index in order, without the wide columns. Parked rows were never
-- delivered; they are marked and not left out, because the limits must count them: a lane whose rows are cut off bounds how far the others
-- may be read.
SELECT r.batch_id, r.session_key,
       EXISTS (SELECT FROM outbox.parked p WHERE p.session_key = r.session_key AND p.batch_id = r.batch_id) AS parked
FROM generate_series(0, (SELECT max(e.lanes) FROM outbox.lane_epoch e) - 1) AS n
CROSS JOIN LATERAL (
    SELECT o.batch_id, o.session_key
    FROM outbox.session_output o
    WHERE o.lane = n
      AND o.batch_id >= %(from_batch)s
      AND o.batch_id <= %(to_batch)s
      AND (o.batch_id, o.session_key) > (%(from_batch)s, %(from_key)s)
    ORDER BY o.batch_id, o.session_key
    LIMIT %(rows)s
) AS r
ORDER BY r.batch_id, r.session_key
LIMIT %(rows)s

-- name: next_of_keys
-- The next rows of the replay's own session keys.
SELECT o.batch_id, o.session_key,
       EXISTS (SELECT FROM outbox.parked p WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id) AS parked
FROM outbox.replay_key k
JOIN outbox.session_output o ON o.session_key = k.session_key
WHERE k.replay_id = %(replay_id)s
  AND o.batch_id >= %(from_batch)s
  AND o.batch_id <= %(to_batch)s
  AND (o.batch_id, o.session_key) > (%(from_batch)s, %(from_key)s)
ORDER BY o.batch_id, o.session_key
LIMIT %(rows)s

-- name: rows
-- The bounds beside the join prune partitions. Limited by the size of the rows, as `of_lane` in rows.sql.
SELECT r.batch_id, r.session_key, r.revision, r.session_topic_ids, r.session_partitions, r.session_ends, r.session_outputs,
       r.topics, r."values", r.keys, r.headers, r.partitions, r.timestamps_ms, r.size
FROM (
    SELECT s.*, sum(s.size) OVER (ORDER BY s.batch_id, s.session_key ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM (
        SELECT o.*,
               least(pg_column_size(o."values")::bigint * CASE WHEN pg_column_compression(o."values") IS NULL THEN 1 ELSE %(expansion)s END
                     + coalesce(pg_column_size(o.keys), 0) + coalesce(pg_column_size(o.headers), 0), 1073741824)::integer AS size
        FROM unnest(%(batch_ids)s::bigint[], %(session_keys)s::text[]) AS w (batch_id, session_key)
        JOIN outbox.session_output o ON o.batch_id = w.batch_id AND o.session_key = w.session_key
        WHERE o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s
    ) s
) r
WHERE coalesce(r.before, 0) < %(bytes)s
ORDER BY r.batch_id, r.session_key

-- name: rows_between
-- Whole rows of a range of batches, in order, for a file, with the columns of the archive. Reads the ledger once per row, because a join
-- could read all of it.
SELECT o.batch_id, o.session_key, (SELECT b.created_at FROM outbox.batch b WHERE b.batch_id = o.batch_id), o.lane, o.revision, false,
       o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends, o.session_started_ms, o.session_ended_ms, o.session_events,
       o.session_outputs, o.topics, o."values", o.keys, o.headers::text[], o.partitions, o.timestamps_ms
FROM outbox.session_output o
WHERE o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s
  AND (%(keys)s::text[] IS NULL OR o.session_key = ANY (%(keys)s::text[]))
  AND NOT EXISTS (SELECT FROM outbox.parked p WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id)
ORDER BY o.batch_id, o.session_key

-- name: unfinished_counts
-- Returns 0 for a state without replays, so that an increase shows the first replay.
SELECT s.state, count(r.replay_id), coalesce(sum(r.events_total - r.events_sent), 0)::bigint
FROM unnest(ARRAY['running', 'paused']) AS s (state)
LEFT JOIN outbox.replay r ON r.state = s.state
GROUP BY s.state

-- name: keys
SELECT k.session_key FROM outbox.replay_key k WHERE k.replay_id = %(replay_id)s ORDER BY k.session_key

-- name: unknown_keys
SELECT k.session_key
FROM unnest(%(keys)s::text[]) AS k (session_key)
WHERE NOT EXISTS (
    SELECT FROM outbox.session_output o
    WHERE o.session_key = k.session_key AND o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s)
ORDER BY k.session_key
