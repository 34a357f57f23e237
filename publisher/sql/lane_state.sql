-- The last column: whether an earlier epoch is not through. A resume may have set one of its lanes back.
-- Only under our own lease: what a later holder wrote says nothing about the progress record that we read.
SELECT l.seq, l.cursor_batch, l.cursor_key,
       coalesce((SELECT max(d.seq) FROM outbox.delivery d WHERE d.epoch = l.epoch AND d.lane = l.lane), 0),
       (SELECT max(e.epoch) FROM outbox.lane_epoch e),
       coalesce((SELECT min(p.epoch) FROM outbox.lane_position p WHERE NOT p.ended) < l.epoch, false)
FROM outbox.lane l
WHERE l.epoch = %(epoch)s AND l.lane = %(lane)s AND l.lease_token = %(lease_token)s
