-- To every publisher process: lanes, processes or reasons to stand still have changed, look at once.
SELECT pg_notify('outbox_publisher', '')
