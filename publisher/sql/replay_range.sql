-- What bounds a replay: the ledger's newest batch, the last one that every lane has passed whole, the batches whose rows are kept, by
-- partition (first, and last exclusive), the first batch committed since a time and the last one before another. A clock that stepped back
-- leaves no batch of the time out.
SELECT
    (SELECT coalesce(max(b.batch_id), 0) FROM outbox.batch b),
    (SELECT coalesce(min(through.batch_id), 0)
     FROM outbox.lane_epoch e
     CROSS JOIN LATERAL (SELECT min(x.from_batch) - 1 AS batch_id FROM outbox.lane_epoch x WHERE x.epoch > e.epoch) last
     CROSS JOIN generate_series(0, e.lanes - 1) AS n
     LEFT JOIN outbox.lane l ON l.epoch = e.epoch AND l.lane = n
     CROSS JOIN LATERAL (
        SELECT greatest(e.from_batch - 1, CASE WHEN l.cursor_key IS NULL THEN l.cursor_batch ELSE l.cursor_batch - 1 END) AS batch_id
     ) through
     WHERE last.batch_id IS NULL OR through.batch_id < last.batch_id),
    (SELECT coalesce(array_agg(f.bounds ORDER BY f.bounds), '{}')
     FROM pg_inherits i
     JOIN pg_class c ON c.oid = i.inhrelid
     CROSS JOIN LATERAL (
        SELECT regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''(\d+)''\) TO \(''(\d+)''\)')::bigint[] AS bounds
     ) f
     WHERE i.inhparent = 'outbox.session_output'::regclass AND NOT i.inhdetachpending),
    (SELECT min(b.batch_id) FROM outbox.batch b WHERE b.created_at >= m.since),
    (SELECT max(b.batch_id) FROM outbox.batch b WHERE b.created_at < m.until)
FROM (SELECT
    coalesce(%(since)s::timestamptz, now() - make_interval(secs => %(since_age_s)s::double precision)) AS since,
    coalesce(%(until)s::timestamptz, now() - make_interval(secs => %(until_age_s)s::double precision)) AS until
) m
