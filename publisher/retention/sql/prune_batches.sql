-- One step through the ledger: looks at the rows after `after` and deletes those that nothing names. What stays: a generation that went on from it,
-- a lane's cursor, the batch before an epoch, and each generation's newest stream row, which is a position to go on from. A savepoint holds its
-- position itself. The row right before the floor stays, too: whoever sends from the floor on goes on after it.
-- Returns how many were deleted, the last one looked at, and whether the next step may find more: created_at grows with batch_id.
WITH looked_at AS MATERIALIZED (
    SELECT b.batch_id, b.generation, b.kind, b.created_at < now() - make_interval(secs => %(keep_s)s) AS is_old
    FROM outbox.batch b
    WHERE b.batch_id > %(after)s AND b.batch_id < %(floor)s - 1
    ORDER BY b.batch_id
    LIMIT %(rows)s
), newest AS MATERIALIZED (
    SELECT g.generation, n.batch_id
    FROM (SELECT DISTINCT a.generation FROM looked_at a) g
    CROSS JOIN LATERAL (
        SELECT s.batch_id FROM outbox.batch s WHERE s.generation = g.generation AND s.kind = 'stream' ORDER BY s.batch_id DESC LIMIT 1
    ) n
), deleted AS (
    DELETE FROM outbox.batch d
    USING looked_at a
    LEFT JOIN newest USING (generation)
    WHERE d.batch_id = a.batch_id AND a.is_old
      -- Whatever the join: nothing outside of what was looked at is read.
      AND d.batch_id > %(after)s AND d.batch_id <= (SELECT max(m.batch_id) FROM looked_at m)
      AND NOT EXISTS (SELECT FROM outbox.generation g WHERE g.from_batch = a.batch_id)
      AND NOT EXISTS (SELECT FROM outbox.lane l WHERE l.cursor_batch = a.batch_id)
      AND NOT EXISTS (SELECT FROM outbox.lane_epoch e WHERE e.from_batch - 1 = a.batch_id)
      AND (a.kind <> 'stream' OR a.batch_id < newest.batch_id)
    RETURNING d.batch_id
)
SELECT (SELECT count(*) FROM deleted), max(a.batch_id), count(*) = %(rows)s AND bool_and(a.is_old)
FROM looked_at a
