-- Deliveries, replays, parked rows, dead letters and operations; newest first, page by page.

-- name: deliveries
SELECT d.epoch, d.lane, d.seq, d.kind, d.after_batch, d.after_key, d.to_batch, d.to_key, d.sessions, d.events, d.kafka_offsets::text, d.committed_at, d.note
FROM outbox.delivery d
WHERE (d.committed_at, d.epoch, d.lane, d.seq) < (%(at)s, %(epoch)s, %(lane)s, %(seq)s) AND d.committed_at <= %(at)s
ORDER BY d.committed_at DESC, d.epoch DESC, d.lane DESC, d.seq DESC
LIMIT %(rows)s

-- name: of_lane
SELECT d.epoch, d.lane, d.seq, d.kind, d.after_batch, d.after_key, d.to_batch, d.to_key, d.sessions, d.events, d.kafka_offsets::text, d.committed_at, d.note
FROM outbox.delivery d
WHERE d.epoch = %(epoch)s AND d.lane = %(lane)s AND d.seq < %(seq)s
ORDER BY d.seq DESC
LIMIT %(rows)s

-- name: replays
SELECT r.replay_id, r.state, r.began_at, r.ended_at, r.from_batch, r.to_batch, r.topics, r.only_keys, r.target_topic, r.rows_sent, r.rows_total,
       r.events_sent, r.events_total, r.rows_skipped, r.cursor_batch, r.reason, r.replay_uuid
FROM outbox.audit_replay r
WHERE r.replay_id < %(before)s
ORDER BY r.replay_id DESC
LIMIT %(rows)s

-- name: operations
-- Each login may write any text and any JSON into its own rows. They are returned as text, and no more of each than a page shows.
SELECT o.operation_id, o.at, o.login, host(o.client) AS client, left(o.os_user, 200) AS os_user, left(o.host, 200) AS host,
       left(o.command, 200) AS command, n.arguments, n.result
FROM outbox.audit_operation o
CROSS JOIN LATERAL (
    SELECT ARRAY(SELECT left(a.name, 200) || ': ' || left(coalesce(a.value, 'none'), 2000)
                 FROM jsonb_each_text(CASE jsonb_typeof(o.arguments) WHEN 'object' THEN o.arguments END) AS a (name, value) LIMIT 50) AS arguments,
           ARRAY(SELECT left(r.name, 200) || ': ' || left(coalesce(r.value, 'none'), 2000)
                 FROM jsonb_each_text(CASE jsonb_typeof(o.result) WHEN 'object' THEN o.result END) AS r (name, value) LIMIT 50) AS result
) n
WHERE o.operation_id < %(before)s
LIMIT %(rows)s

-- name: parked
-- As `publisher parked list`, in the order of batches. Parked rows are exceptional, so the whole table is read.
SELECT p.batch_id, p.session_key, p.epoch, p.lane, p.reason, p.detail, p.state, p.requeued_batch, p.created_at
FROM outbox.parked p
WHERE (p.batch_id, p.session_key) < (%(batch_id)s, %(key)s) AND (%(state)s = 'all' OR p.state = %(state)s)
ORDER BY p.batch_id DESC, p.session_key DESC
LIMIT %(rows)s

-- name: letters
-- By number, newest first.
SELECT d.dead_letter_id, d.reason, d.state, d.session_key, d.detail, d.topic, d.partition, d.first_offset, d.last_offset, d.event_count, d.batch_id,
       d.resolved_batch, d.created_at
FROM outbox.dead_letter d
WHERE d.dead_letter_id < %(before)s
ORDER BY d.dead_letter_id DESC
LIMIT %(rows)s

-- name: letters_of_reason
-- Only the index of open letters is read.
SELECT d.dead_letter_id, d.reason, d.state, d.session_key, d.detail, d.topic, d.partition, d.first_offset, d.last_offset, d.event_count, d.batch_id,
       d.resolved_batch, d.created_at
FROM outbox.dead_letter d
WHERE d.state = 'open' AND d.reason = %(reason)s AND (d.created_at, d.dead_letter_id) < (%(at)s, %(before)s) AND d.created_at <= %(at)s
ORDER BY d.created_at DESC, d.dead_letter_id DESC
LIMIT %(rows)s

-- name: reasons
-- Open letters by reason, counted up to a limit, each with its newest letter as an example.
SELECT r.reason, n.letters, x.dead_letter_id, x.session_key, x.detail, x.created_at, o.oldest
FROM unnest(ARRAY['malformed', 'no_start', 'restarted', 'timed_out', 'too_large', 'transform_failed']) AS r (reason)
CROSS JOIN LATERAL (
    SELECT count(*) AS letters FROM (
        SELECT FROM outbox.dead_letter d WHERE d.state = 'open' AND d.reason = r.reason LIMIT %(count_limit)s) c
) n
LEFT JOIN LATERAL (
    SELECT d.dead_letter_id, d.session_key, d.detail, d.created_at FROM outbox.dead_letter d
    WHERE d.state = 'open' AND d.reason = r.reason ORDER BY d.created_at DESC LIMIT 1
) x ON true
LEFT JOIN LATERAL (
    SELECT min(d.created_at) AS oldest FROM outbox.dead_letter d WHERE d.state = 'open' AND d.reason = r.reason
) o ON true
ORDER BY n.letters DESC, r.reason

-- name: letter
-- The letter with its first events, and no more of each value than a page shows or decodes.
SELECT d.dead_letter_id, d.reason, d.state, d.session_key, d.detail, d.topic, d.partition, d.first_offset, d.last_offset, d.closing_offset,
       d.event_count, d.batch_id, d.resolved_batch, d.created_at, cardinality(d.event_values) AS kept_events,
       d.event_offsets[1:%(rows)s] AS event_offsets, d.event_times_ms[1:%(rows)s] AS event_times_ms, d.event_types[1:%(rows)s] AS event_types,
       v.event_values, v.event_bytes
FROM outbox.dead_letter d
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(substring(e.value FROM 1 FOR %(bytes)s) ORDER BY e.number), '{}') AS event_values,
           coalesce(array_agg(octet_length(e.value) ORDER BY e.number), '{}') AS event_bytes
    FROM unnest(d.event_values[1:%(rows)s]) WITH ORDINALITY AS e (value, number)
) v
WHERE d.dead_letter_id = %(dead_letter_id)s

-- name: sizes
SELECT c.relname AS name, pg_total_relation_size(c.oid) AS size
FROM pg_class c
WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r' AND c.relname !~ '^session_output'
ORDER BY 2 DESC
LIMIT 10

-- name: database_size
SELECT pg_database_size(current_database())
