-- Sessions and events of a lane's rows between two cursors; parked rows are passed again, not sent.
SELECT coalesce(sum(cardinality(o.session_ends)), 0)::bigint, coalesce(sum(cardinality(o.topics)), 0)::bigint
FROM outbox.session_output o
WHERE o.lane = %(lane)s
  AND o.batch_id >= %(from_batch)s
  AND o.batch_id <= %(to_batch)s
  AND (o.batch_id, o.session_key) > (%(from_batch)s, %(from_key)s)
  AND (o.batch_id, o.session_key) <= (%(to_batch)s, %(to_key)s)
  AND NOT EXISTS (SELECT FROM outbox.parked p WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id)
