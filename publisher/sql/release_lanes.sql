UPDATE outbox.lane
SET lease_holder = NULL, lease_until = NULL, lease_backend_pid = NULL, lease_backend_start = NULL
WHERE epoch = %(epoch)s AND lane = ANY (%(lanes)s) AND lease_holder = %(holder)s
