-- The next rows of all lanes, merged: each lane's come out of its index in order, without the wide columns. What is parked was never delivered;
-- it is told apart here and not left out, because the limits must count it: a lane that is cut short bounds how far the others may be read.
SELECT r.batch_id, r.session_key,
       EXISTS (SELECT FROM outbox.parked p WHERE p.session_key = r.session_key AND p.batch_id = r.batch_id) AS parked
FROM generate_series(0, (SELECT max(e.lanes) FROM outbox.lane_epoch e) - 1) AS n
CROSS JOIN LATERAL (
    SELECT o.batch_id, o.session_key
    FROM outbox.session_output o
    WHERE o.lane = n
      AND o.batch_id >= %(from_batch)s
      AND o.batch_id <= %(to_batch)s
      AND (o.batch_id, o.session_key) > (%(from_batch)s, %(from_key)s)
    ORDER BY o.batch_id, o.session_key
    LIMIT %(rows)s
) AS r
ORDER BY r.batch_id, r.session_key
LIMIT %(rows)s
