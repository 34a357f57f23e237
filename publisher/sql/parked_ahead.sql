SELECT p.batch_id, p.session_key
FROM outbox.parked p
WHERE p.epoch = %(epoch)s AND p.lane = %(lane)s AND (p.batch_id, p.session_key) > (%(from_batch)s, %(from_key)s)
