-- Lanes of an epoch that is over kept their holder until all of them were through.
UPDATE outbox.lane
SET lease_holder = NULL, lease_until = NULL, lease_backend_pid = NULL, lease_backend_start = NULL
WHERE lease_holder = %(holder)s AND epoch <> %(epoch)s
