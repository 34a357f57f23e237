-- The two channels: `outbox_batch` tells of committed batches, `outbox_publisher` tells the publishers of each other.

-- name: listen_to_batches
LISTEN outbox_batch

-- name: listen_to_publishers
LISTEN outbox_publisher

-- name: wake_publishers
-- To every publisher process: lanes, processes or reasons to stand still have changed, look at once.
SELECT pg_notify('outbox_publisher', '')
