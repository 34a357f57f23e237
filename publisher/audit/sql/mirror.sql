-- The mirror is the newest delivery; where all deliveries are kept, its sums are theirs. A resume sets them.
SELECT l.epoch, l.lane, l.seq, l.cursor_batch, l.cursor_key, l.sessions, l.events,
       n.seq, n.to_batch, n.to_key, s.first_seq, s.sessions, s.events
FROM outbox.lane l
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
ORDER BY l.epoch, l.lane
