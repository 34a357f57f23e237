INSERT INTO outbox.bucket (generation, bucket, batch_id, open_sessions, open_events, open_bytes, state_bytes, oldest_open)
SELECT b.generation, n, b.batch_id, 3, 150, 22500, 30000, b.safe_offsets
FROM generate_series(0, 7) n
CROSS JOIN (SELECT * FROM outbox.batch WHERE kind = 'stream' ORDER BY batch_id DESC LIMIT 1) b
