-- The audit's queries on the ledger.

-- name: scope
-- The ledger, and the first and last batch of each partition whose rows are kept. Retention drops whole partitions.
SELECT (SELECT min(b.batch_id) FROM outbox.batch b),
       (SELECT max(b.batch_id) FROM outbox.batch b),
       (SELECT coalesce(array_agg(ARRAY[p.from_batch, p.to_batch] ORDER BY p.from_batch), '{}') FROM outbox.output_partition p WHERE NOT p.detaching),
       (SELECT min(b.batch_id) FROM outbox.batch b WHERE b.created_at >= %(since)s),
       (SELECT max(b.batch_id) FROM outbox.batch b WHERE b.created_at < %(until)s)

-- name: epochs
SELECT e.epoch, e.from_batch, e.lanes FROM outbox.lane_epoch e ORDER BY e.epoch

-- name: ranges
-- The ledger's rows, from which ranges of limited size are cut.
SELECT b.batch_id, b.sessions FROM outbox.batch b
WHERE b.batch_id >= %(from_batch)s AND b.batch_id <= %(to_batch)s
ORDER BY b.batch_id
LIMIT %(batches)s

-- name: totals
SELECT coalesce(sum(b.sessions), 0)::bigint, coalesce(sum(b.output_events), 0)::bigint
FROM outbox.batch b
WHERE b.batch_id >= %(from_batch)s AND b.batch_id <= %(to_batch)s

-- name: input
-- Input topics ever read; revision and lower bounds of what the first audited stream batch and those after it may emit: what closes below
-- any of them was emitted before. The ends of earlier generations of the revision are among them, because before 0005 a generation read
-- again what they had dealt with.
SELECT (SELECT coalesce(array_agg(DISTINCT k.id), '{}') FROM outbox.generation g CROSS JOIN LATERAL jsonb_object_keys(g.topics) AS k (id)),
       f.revision, coalesce(f.bounds, '{}')
FROM (VALUES (1)) one
LEFT JOIN LATERAL (
    SELECT g.revision, array_prepend(b.start_offsets, ARRAY(
        SELECT coalesce(n.end_offsets, e.start_offsets)
        FROM outbox.generation e
        LEFT JOIN LATERAL (
            SELECT x.end_offsets FROM outbox.batch x
            WHERE x.generation = e.generation AND x.kind = 'stream'
            ORDER BY x.batch_id DESC LIMIT 1
        ) n ON true
        WHERE e.generation < g.generation AND e.revision = g.revision)) AS bounds
    FROM outbox.batch b
    JOIN outbox.generation g ON g.generation = b.generation
    WHERE b.kind = 'stream' AND b.batch_id >= %(from_batch)s
    ORDER BY b.batch_id
    LIMIT 1
) f ON true

-- name: gaps
-- Batch ids are dense. Returns each gap, as the first and the last missing id.
SELECT greatest(l.first_missing, %(from_batch)s), l.last_missing
FROM outbox.audit_ledger l
WHERE l.problem = 'missing' AND l.last_missing >= %(from_batch)s AND l.batch_id <= %(to_batch)s
ORDER BY l.batch_id

-- name: discontinuities
SELECT l.detail
FROM outbox.audit_ledger l
WHERE l.problem = 'discontinuous' AND l.batch_id >= %(from_batch)s AND l.batch_id <= %(to_batch)s
ORDER BY l.batch_id

-- name: offsets_and_times
SELECT l.batch_id, l.problem = 'time', l.detail
FROM outbox.audit_ledger l
WHERE l.problem IN ('offsets', 'time') AND l.batch_id >= %(from_batch)s AND l.batch_id <= %(to_batch)s
ORDER BY l.batch_id

-- name: batch_counts
-- The counts of each batch by the ledger and by its rows, if they differ. Either side may be missing.
SELECT c.batch_id, NOT c.in_ledger, c.ledger_sessions, c.ledger_events, c.ledger_bytes, c.row_sessions, c.row_events, c.row_bytes
FROM outbox.check_batch_counts(%(from_batch)s, %(to_batch)s) c
ORDER BY c.batch_id
