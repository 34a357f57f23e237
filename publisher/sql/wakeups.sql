-- The two channels: `outbox_batch` announces committed batches; `outbox_publisher` tells publishers about each other.

-- name: listen_to_batches
LISTEN outbox_batch

-- name: listen_to_publishers
LISTEN outbox_publisher

-- name: wake_publishers
-- Makes every publisher process check at once, because lanes, processes or the reason of a stopped lane have changed.
SELECT outbox.wake('outbox_publisher', '')
