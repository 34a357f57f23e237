-- Ended in order: the others take its lanes over at once.
WITH released AS (
    UPDATE outbox.lane AS l
    SET lease_holder = NULL, lease_until = NULL, lease_backend_pid = NULL, lease_backend_start = NULL
    WHERE (l.epoch, l.lane) IN (
        SELECT h.epoch, h.lane FROM outbox.lane h WHERE h.lease_holder = %(holder)s FOR NO KEY UPDATE SKIP LOCKED
    )
), ended AS (
    UPDATE outbox.publisher_process SET alive_until = now(), ended_at = now() WHERE process_id = %(holder)s::text::uuid
)
SELECT pg_notify('outbox_publisher', '')
