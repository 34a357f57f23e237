-- What the deliveries of a lane say they sent, and the rows of their cursor ranges that were not put aside.
SELECT d.seq, d.sessions, d.events, d.row_sessions, d.row_events, d.after_batch, d.after_key, d.to_batch, d.to_key
FROM outbox.check_delivery_counts d
WHERE d.epoch = %(epoch)s AND d.lane = %(lane)s AND d.seq > %(after_seq)s
ORDER BY d.seq
LIMIT %(deliveries)s
