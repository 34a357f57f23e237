-- What a replay still has to read.
SELECT r.replay_id, r.state, greatest(r.from_batch, r.cursor_batch), r.to_batch
FROM outbox.replay r
WHERE r.state IN ('running', 'paused')
ORDER BY r.replay_id
