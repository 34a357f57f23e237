CREATE OR REPLACE VIEW outbox.audit_undelivered AS
SELECT
    l.epoch,
    l.lane,
    CASE WHEN l.stopped_reason IS NOT NULL THEN 'stopped'
         WHEN l.held THEN 'running'
         WHEN l.epoch > (SELECT min(f.epoch) FROM outbox.lane_position f WHERE NOT f.ended) THEN 'waiting'
         ELSE 'nobody' END AS publisher,
    b.batch_id AS oldest_batch,
    b.created_at AS oldest_committed_at,
    now() - b.created_at AS oldest_age,
    l.last_batch - greatest(l.cursor_batch, l.from_batch - 1) AS batches_behind,
    (SELECT count(*) FROM outbox.session_output o
     WHERE o.lane = l.lane AND o.batch_id >= greatest(l.cursor_batch, l.from_batch) AND o.batch_id <= l.last_batch
       AND (o.batch_id > l.cursor_batch OR o.session_key > l.cursor_key)) AS waiting_rows,
    l.stopped_reason
FROM outbox.lane_position l
CROSS JOIN LATERAL (
    SELECT o.batch_id FROM outbox.session_output o
    WHERE o.lane = l.lane AND o.batch_id >= greatest(l.cursor_batch, l.from_batch) AND o.batch_id <= l.last_batch
      AND (o.batch_id > l.cursor_batch OR o.session_key > l.cursor_key)
    ORDER BY o.batch_id, o.session_key
    LIMIT 1
) oldest
JOIN outbox.batch b ON b.batch_id = oldest.batch_id
WHERE NOT l.ended;

COMMENT ON COLUMN outbox.lane.stopped_reason IS NULL;
COMMENT ON COLUMN outbox.lane.stopped_why IS NULL;
COMMENT ON COLUMN outbox.audit_undelivered.stopped_reason IS
    'why the lane does not go on, and the commands that mend it';
