-- The others hear of it, so that whoever is short of a lane claims it at once.
WITH released AS (
    UPDATE outbox.lane
    SET lease_holder = NULL, lease_until = NULL, lease_backend_pid = NULL, lease_backend_start = NULL
    WHERE epoch = %(epoch)s AND lane = %(lane)s AND lease_token = %(lease_token)s
    RETURNING lane
)
SELECT pg_notify('outbox_publisher', '') FROM released
