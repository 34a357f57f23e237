-- Takes a lane from whoever holds it: its holder is fenced in Kafka next, and finds its token gone here.
UPDATE outbox.lane
SET lease_token = lease_token + 1,
    lease_holder = %(holder)s,
    lease_until = now() + make_interval(secs => %(lease_s)s),
    lease_backend_pid = pg_backend_pid(),
    lease_backend_start = (SELECT a.backend_start FROM pg_stat_activity a WHERE a.pid = pg_backend_pid())
WHERE epoch = %(epoch)s AND lane = %(lane)s
RETURNING lease_token
