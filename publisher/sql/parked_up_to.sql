SELECT count(*)
FROM outbox.parked p
WHERE p.epoch = %(epoch)s AND p.lane = %(lane)s AND (p.batch_id, p.session_key) <= (%(to_batch)s, %(to_key)s)
