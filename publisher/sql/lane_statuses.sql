-- Every lane of every epoch that is not over, also those that no publisher has run yet. `waiting`: an earlier epoch is being worked on.
WITH lane AS (
    SELECT p.epoch, p.lane, p.from_batch, p.seq, p.cursor_batch, p.cursor_key, p.last_batch, p.sessions, p.events, p.lease_holder, p.held,
           p.stopped_reason, p.stopped_why
    FROM outbox.lane_position p
)
SELECT
    l.epoch, l.lane,
    coalesce((SELECT p.host || ':' || p.pid FROM outbox.publisher_process p WHERE p.process_id::text = l.lease_holder), l.lease_holder),
    l.held, l.seq, l.cursor_batch, l.cursor_key, l.sessions, l.events, l.stopped_reason, l.stopped_why,
    (SELECT max(d.committed_at) FROM outbox.delivery d WHERE d.epoch = l.epoch AND d.lane = l.lane AND d.seq = l.seq),
    greatest(0, l.last_batch - greatest(l.cursor_batch, l.from_batch - 1)),
    (SELECT count(*) FROM (
        SELECT FROM outbox.session_output o
        WHERE o.lane = l.lane AND o.batch_id >= greatest(l.cursor_batch, l.from_batch) AND o.batch_id <= l.last_batch
          AND (o.batch_id > l.cursor_batch OR o.session_key > l.cursor_key)
        LIMIT %(count_limit)s) undelivered),
    extract(epoch FROM now() - (SELECT b.created_at FROM outbox.batch b WHERE b.batch_id = (
        SELECT o.batch_id FROM outbox.session_output o
        WHERE o.lane = l.lane AND o.batch_id >= greatest(l.cursor_batch, l.from_batch) AND o.batch_id <= l.last_batch
          AND (o.batch_id > l.cursor_batch OR o.session_key > l.cursor_key)
        ORDER BY o.batch_id LIMIT 1)))::double precision,
    EXISTS (SELECT FROM lane h WHERE h.epoch < l.epoch AND h.held)
FROM lane l
WHERE l.stopped_reason IS NOT NULL
   OR l.epoch >= (SELECT max(k.epoch) FROM outbox.lane_epoch k)
   OR l.cursor_batch < l.last_batch OR l.cursor_key IS NOT NULL
ORDER BY l.epoch, l.lane
