SELECT
    l.epoch, l.lane,
    coalesce((SELECT p.host || ':' || p.pid FROM outbox.publisher_process p WHERE p.process_id::text = l.lease_holder), l.lease_holder),
    l.lease_until >= now() AND EXISTS (
        SELECT FROM pg_stat_activity a
        WHERE a.pid = l.lease_backend_pid AND (a.backend_start = l.lease_backend_start) IS NOT FALSE
    ) AS held,
    l.seq, l.cursor_batch, l.cursor_key, l.sessions, l.events, l.stopped_reason, l.stopped_why,
    (SELECT max(d.committed_at) FROM outbox.delivery d WHERE d.epoch = l.epoch AND d.lane = l.lane AND d.seq = l.seq),
    greatest(0, upper.batch_id - greatest(l.cursor_batch, e.from_batch - 1)),
    (SELECT count(*) FROM (
        SELECT FROM outbox.session_output o
        WHERE o.lane = l.lane AND o.batch_id >= greatest(l.cursor_batch, e.from_batch) AND o.batch_id <= upper.batch_id
          AND (o.batch_id > l.cursor_batch OR o.session_key > l.cursor_key)
        LIMIT %(count_limit)s) undelivered),
    extract(epoch FROM now() - (SELECT b.created_at FROM outbox.batch b WHERE b.batch_id = (
        SELECT o.batch_id FROM outbox.session_output o
        WHERE o.lane = l.lane AND o.batch_id >= greatest(l.cursor_batch, e.from_batch) AND o.batch_id <= upper.batch_id
          AND (o.batch_id > l.cursor_batch OR o.session_key > l.cursor_key)
        ORDER BY o.batch_id LIMIT 1)))::double precision
FROM outbox.lane l
JOIN outbox.lane_epoch e ON e.epoch = l.epoch
CROSS JOIN LATERAL (
    SELECT least((SELECT coalesce(max(b.batch_id), 0) FROM outbox.batch b),
                 (SELECT min(n.from_batch) - 1 FROM outbox.lane_epoch n WHERE n.epoch > l.epoch)) AS batch_id
) upper
WHERE l.lane < e.lanes
  AND (l.stopped_reason IS NOT NULL
       OR l.epoch >= (SELECT max(k.epoch) FROM outbox.lane_epoch k)
       OR l.cursor_batch < upper.batch_id OR l.cursor_key IS NOT NULL)
ORDER BY l.epoch, l.lane
