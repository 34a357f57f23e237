-- Each lane's oldest deliveries up to the first one that must stay, so that what is left is a chain. The newest of a lane always stays.
DELETE FROM outbox.delivery d
WHERE (d.epoch, d.lane, d.seq) IN (
    SELECT o.epoch, o.lane, o.seq
    FROM outbox.lane l
    CROSS JOIN LATERAL (
        SELECT k.seq FROM outbox.delivery k
        WHERE k.epoch = l.epoch AND k.lane = l.lane
          AND (k.to_batch >= %(floor)s OR k.committed_at >= now() - make_interval(secs => %(keep_s)s)
               OR k.seq = (SELECT max(m.seq) FROM outbox.delivery m WHERE m.epoch = l.epoch AND m.lane = l.lane))
        ORDER BY k.seq LIMIT 1) first_kept
    JOIN outbox.delivery o ON o.epoch = l.epoch AND o.lane = l.lane AND o.seq < first_kept.seq
    LIMIT %(rows)s)
