-- The lock makes a takeover wait for this row, and this row see the takeover.
INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail)
SELECT %(session_key)s, %(batch_id)s, l.epoch, l.lane, l.lease_token, %(reason)s, %(detail)s
FROM outbox.lane l
WHERE l.epoch = %(epoch)s AND l.lane = %(lane)s AND l.lease_token = %(lease_token)s AND l.lease_holder IS NOT NULL
FOR SHARE OF l
