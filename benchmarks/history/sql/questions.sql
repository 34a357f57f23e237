-- What the benchmarks ask of the loaded week, and how they set it back.

-- name: newest_batch
SELECT max(batch_id) FROM outbox.batch

-- name: session_key
SELECT session_key FROM outbox.session_output
WHERE batch_id = (SELECT max(batch_id) / 2 FROM outbox.batch)
ORDER BY session_key LIMIT 1

-- name: surroundings
SELECT current_setting('server_version'), (SELECT sum(sessions) FROM outbox.batch), (SELECT count(*) FROM outbox.batch), pg_database_size(current_database())

-- name: forget_deliveries
DELETE FROM outbox.delivery WHERE to_batch > %(to_batch)s

-- name: set_lanes_back
UPDATE outbox.lane l
SET seq = d.seq, cursor_batch = d.to_batch, cursor_key = d.to_key
FROM (SELECT DISTINCT ON (epoch, lane) epoch, lane, seq, to_batch, to_key FROM outbox.delivery ORDER BY epoch, lane, seq DESC) d
WHERE d.epoch = l.epoch AND d.lane = l.lane
