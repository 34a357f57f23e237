-- Below it every output is gone and delivered. Also below every lane that still has to deliver, should somebody have dropped a table by hand.
WITH epoch AS (
    SELECT e.epoch, e.from_batch, e.lanes, lead(e.from_batch) OVER (ORDER BY e.epoch) - 1 AS to_batch
    FROM outbox.lane_epoch e
), through AS (
    SELECT e.to_batch,
           CASE WHEN l.stopped_why = 'resuming' THEN e.from_batch - 1
                ELSE greatest(e.from_batch - 1, coalesce(l.cursor_batch - (l.cursor_key IS NOT NULL)::integer, 0)) END AS batch_id
    FROM epoch e
    CROSS JOIN LATERAL generate_series(0, e.lanes - 1) AS n (lane)
    LEFT JOIN outbox.lane l ON l.epoch = e.epoch AND l.lane = n.lane
)
SELECT least(
    (SELECT min((regexp_match(pg_get_expr(c.relpartbound, c.oid), '^FOR VALUES FROM \(''(\d+)''\)'))[1]::bigint)
     FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = 'outbox.session_output'::regclass),
    (SELECT min(t.batch_id) FROM through t WHERE t.batch_id < t.to_batch OR t.to_batch IS NULL),
    (SELECT min(greatest(r.from_batch, r.cursor_batch)) FROM outbox.replay r WHERE r.state IN ('running', 'paused')),
    (SELECT min(p.batch_id) FROM outbox.parked p WHERE p.state = 'parked'),
    (SELECT max(b.batch_id) FROM outbox.batch b))
