UPDATE outbox.lane
SET lease_holder = NULL, lease_until = NULL, lease_backend_pid = NULL, lease_backend_start = NULL
WHERE epoch = %(epoch)s AND lane = %(lane)s AND lease_token = %(lease_token)s
