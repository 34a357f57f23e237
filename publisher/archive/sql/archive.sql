-- The rows that go into the archive, and the outbox's record of the archive.

-- name: identity
-- The outbox's uuid, whether it is on the server that it was created on or adopted by, and three values that differ in a copy of the
-- database.
SELECT i.outbox_uuid, i.system_identifier = s.system_identifier, s.system_identifier,
       (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()), s.timeline
FROM outbox.identity i CROSS JOIN outbox.server_identity() s

-- name: catalogue
SELECT a.partition_name, a.from_batch, a.to_batch, a.archive_id, a.manifest_sha256, a.row_count, a.sessions, a.outputs, a.output_bytes,
       a.erased_rows, a.archived_at
FROM outbox.archived a
WHERE a.to_batch >= %(from_batch)s AND (%(to_batch)s::bigint IS NULL OR a.from_batch <= %(to_batch)s)
ORDER BY a.from_batch

-- name: hold
SELECT h.row_count, h.sessions, h.outputs FROM outbox.hold_partition(%(partition)s) h

-- name: row_keys
-- The next rows of all lanes, merged from the index. Rows with a lane that no epoch has are missing here; the comparison of counts finds
-- them.
SELECT r.batch_id, r.session_key
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

-- name: rows
-- Limited by the size of the rows, as `of_lane` in rows.sql. created_at is NULL if the batch has no ledger row.
SELECT r.batch_id, r.session_key, b.created_at, r.lane, r.revision,
       EXISTS (SELECT FROM outbox.parked p WHERE p.session_key = r.session_key AND p.batch_id = r.batch_id),
       r.session_topic_ids, r.session_partitions, r.session_starts, r.session_ends, r.session_started_ms, r.session_ended_ms, r.session_events,
       r.session_outputs, r.topics, r."values", r.keys, r.headers::text[], r.partitions, r.timestamps_ms, r.size
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
LEFT JOIN outbox.batch b ON b.batch_id = r.batch_id
WHERE coalesce(r.before, 0) < %(bytes)s
ORDER BY r.batch_id, r.session_key

-- name: alive
SELECT 1

-- name: now
SELECT clock_timestamp()

-- name: drop
SELECT outbox.drop_archived(%(partition)s, %(archive_id)s, %(manifest_sha256)s, %(rows)s, %(sessions)s, %(outputs)s, %(output_bytes)s)

-- name: rewrite
SELECT outbox.rewrite_archived(%(partition)s, %(old_manifest)s, %(new_manifest)s, %(erased)s)

-- name: ledger
-- The ledger's counts of an archived partition, without erased rows. Sessions are NULL if ledger rows were pruned.
SELECT CASE WHEN l.batches = %(to_batch)s - greatest(%(from_batch)s, 1) + 1 THEN l.sessions - e.sessions END, l.outputs - e.outputs, l.bytes - e.bytes
FROM (SELECT count(*) AS batches, sum(b.sessions)::bigint AS sessions, sum(b.output_events)::bigint AS outputs, sum(b.output_bytes)::bigint AS bytes
      FROM outbox.batch b WHERE b.batch_id >= %(from_batch)s AND b.batch_id <= %(to_batch)s) l
CROSS JOIN (SELECT coalesce(sum(cardinality(x.ends)), 0)::bigint AS sessions,
                   coalesce(sum((SELECT sum(n) FROM unnest(x.outputs) n)), 0)::bigint AS outputs, coalesce(sum(x.output_bytes), 0)::bigint AS bytes
            FROM outbox.erased x
            WHERE x.batch_id >= %(from_batch)s AND x.batch_id <= %(to_batch)s AND x.dead_letter_id IS NULL) e

-- name: dropped
-- Ranges of batches, from the first archived one on, that are neither kept nor archived.
SELECT lower(g.gap), upper(g.gap) - 1
FROM (SELECT unnest(int8multirange(int8range((SELECT min(a.from_batch) FROM outbox.archived a), (SELECT max(b.batch_id) FROM outbox.batch b), '[]'))
                    - coalesce((SELECT range_agg(int8range(p.from_batch, p.to_batch, '[]')) FROM outbox.output_partition p), '{}'::int8multirange)
                    - coalesce((SELECT range_agg(int8range(a.from_batch, a.to_batch, '[]')) FROM outbox.archived a), '{}'::int8multirange)) AS gap) g
WHERE EXISTS (SELECT FROM outbox.archived)

-- name: partitions
SELECT p.name::text FROM outbox.output_partition p
