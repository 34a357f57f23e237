-- The first row of these batches whose lane the epoch does not have. Lane by lane where earlier epochs had more, because the index leads
-- with the lane: their rows in the same partitions are not walked over.
SELECT o.batch_id, o.lane
FROM (SELECT greatest(max(e.lanes), %(lanes)s) AS lanes FROM outbox.lane_epoch e) most
CROSS JOIN LATERAL (
    (SELECT s.batch_id, s.session_key, s.lane
     FROM generate_series(%(lanes)s, most.lanes - 1) AS n (lane)
     CROSS JOIN LATERAL (
         SELECT r.batch_id, r.session_key, r.lane
         FROM outbox.session_output r
         WHERE r.lane = n.lane AND r.batch_id > %(after_batch)s AND r.batch_id <= %(to_batch)s
         ORDER BY r.batch_id, r.session_key
         LIMIT 1
     ) s
     LIMIT 1)
    UNION ALL
    (SELECT r.batch_id, r.session_key, r.lane
     FROM outbox.session_output r
     WHERE r.lane >= most.lanes AND r.batch_id > %(after_batch)s AND r.batch_id <= %(to_batch)s
     LIMIT 1)
) o
LIMIT 1
