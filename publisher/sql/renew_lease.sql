UPDATE outbox.lane
SET lease_until = now() + make_interval(secs => %(lease_s)s)
WHERE epoch = %(epoch)s AND lane = %(lane)s AND lease_token = %(lease_token)s AND lease_holder IS NOT NULL
