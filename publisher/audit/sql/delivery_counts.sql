-- What the deliveries of a lane say they sent, and the rows of their cursor ranges that were not put aside. Both bounds of batch_id prune.
SELECT d.seq, d.sessions, d.events, r.sessions, r.events, d.after_batch, d.after_key, d.to_batch, d.to_key, d.kind
FROM (
    SELECT * FROM outbox.delivery
    WHERE epoch = %(epoch)s AND lane = %(lane)s AND seq > %(after_seq)s
    ORDER BY seq
    LIMIT %(deliveries)s
) d
CROSS JOIN LATERAL (
    SELECT coalesce(sum(cardinality(o.session_ends)), 0) AS sessions, coalesce(sum(cardinality(o.topics)), 0) AS events
    FROM outbox.session_output o
    LEFT JOIN outbox.parked p ON p.session_key = o.session_key AND p.batch_id = o.batch_id
    WHERE d.kind = 'delivery' AND o.lane = d.lane
      AND o.batch_id >= d.after_batch AND o.batch_id <= d.to_batch
      AND (o.batch_id, o.session_key) > (d.after_batch + CASE WHEN d.after_key IS NULL THEN 1 ELSE 0 END, coalesce(d.after_key, ''))
      AND (d.to_key IS NULL OR (o.batch_id, o.session_key) <= (d.to_batch, d.to_key))
      AND p.batch_id IS NULL
) r
ORDER BY d.seq
