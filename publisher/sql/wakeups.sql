-- The two channels: `outbox_batch` tells of committed batches, `outbox_publisher` tells the publishers of each other.

-- name: listen_to_batches
LISTEN outbox_batch

-- name: listen_to_publishers
LISTEN outbox_publisher

-- name: wake_publishers
-- Makes every publisher process check at once: lanes, processes or the reason why a lane has stopped have changed.
SELECT outbox.wake('outbox_publisher', '')
