-- Deliveries that end in a range of batches and say otherwise than the rows of their cursor range that were not put aside. The first condition
-- is for delivery_batches_idx.
SELECT d.epoch, d.lane, d.seq, d.sessions, d.events, d.row_sessions, d.row_events, d.after_batch, d.after_key, d.to_batch, d.to_key
FROM outbox.check_delivery_counts d
WHERE int8range(least(d.after_batch, d.to_batch), d.to_batch, '[]') && int8range(%(from_batch)s, %(to_batch)s, '[]')
  AND d.to_batch >= %(from_batch)s AND d.to_batch <= %(to_batch)s
  AND (d.sessions, d.events) IS DISTINCT FROM (d.row_sessions, d.row_events)
ORDER BY d.epoch, d.lane, d.seq
