-- Every lane of every epoch that is not over, also those that no publisher has run yet. `waiting`: an earlier epoch is being worked on.
WITH lane AS (
    SELECT e.epoch, n.lane, e.from_batch, l.lease_holder, l.seq, l.cursor_batch, l.cursor_key, l.sessions, l.events,
           l.stopped_reason, l.stopped_why,
           -- A backend older than the server: nobody had the time to come back yet.
           coalesce(l.lease_until >= now() AND (
               l.lease_backend_start < pg_postmaster_start_time()
               OR EXISTS (
                   SELECT FROM pg_stat_activity a
                   WHERE a.pid = l.lease_backend_pid AND (a.backend_start = l.lease_backend_start) IS NOT FALSE
               )
           ), false) AS held
    FROM outbox.lane_epoch e
    CROSS JOIN LATERAL generate_series(0, e.lanes - 1) AS n (lane)
    LEFT JOIN outbox.lane l ON l.epoch = e.epoch AND l.lane = n.lane
)
SELECT
    l.epoch, l.lane,
    coalesce((SELECT p.host || ':' || p.pid FROM outbox.publisher_process p WHERE p.process_id::text = l.lease_holder), l.lease_holder),
    l.held, coalesce(l.seq, 0), c.batch_id, l.cursor_key, coalesce(l.sessions, 0), coalesce(l.events, 0), l.stopped_reason, l.stopped_why,
    (SELECT max(d.committed_at) FROM outbox.delivery d WHERE d.epoch = l.epoch AND d.lane = l.lane AND d.seq = l.seq),
    greatest(0, upper.batch_id - greatest(c.batch_id, l.from_batch - 1)),
    (SELECT count(*) FROM (
        SELECT FROM outbox.session_output o
        WHERE o.lane = l.lane AND o.batch_id >= greatest(c.batch_id, l.from_batch) AND o.batch_id <= upper.batch_id
          AND (o.batch_id > c.batch_id OR o.session_key > l.cursor_key)
        LIMIT %(count_limit)s) undelivered),
    extract(epoch FROM now() - (SELECT b.created_at FROM outbox.batch b WHERE b.batch_id = (
        SELECT o.batch_id FROM outbox.session_output o
        WHERE o.lane = l.lane AND o.batch_id >= greatest(c.batch_id, l.from_batch) AND o.batch_id <= upper.batch_id
          AND (o.batch_id > c.batch_id OR o.session_key > l.cursor_key)
        ORDER BY o.batch_id LIMIT 1)))::double precision,
    EXISTS (SELECT FROM lane h WHERE h.epoch < l.epoch AND h.held)
FROM lane l
CROSS JOIN LATERAL (SELECT coalesce(l.cursor_batch, 0) AS batch_id) c
CROSS JOIN LATERAL (
    SELECT least((SELECT coalesce(max(b.batch_id), 0) FROM outbox.batch b),
                 (SELECT min(n.from_batch) - 1 FROM outbox.lane_epoch n WHERE n.epoch > l.epoch)) AS batch_id
) upper
WHERE l.stopped_reason IS NOT NULL
   OR l.epoch >= (SELECT max(k.epoch) FROM outbox.lane_epoch k)
   OR c.batch_id < upper.batch_id OR l.cursor_key IS NOT NULL
ORDER BY l.epoch, l.lane
