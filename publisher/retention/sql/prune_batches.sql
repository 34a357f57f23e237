-- Rows that something names stay: a generation that went on from it, a lane's cursor, the batch before an epoch, and each generation's
-- newest stream row, which is a position to go on from. A savepoint holds its position itself. The row right before the floor stays, too:
-- whoever sends from the floor on goes on after it.
-- The newest are looked for once, a generation at a time: a planner without statistics would read the whole ledger again for each of its
-- rows.
WITH newest AS MATERIALIZED (
    SELECT g.generation, n.batch_id
    FROM outbox.generation g
    CROSS JOIN LATERAL (
        SELECT s.batch_id FROM outbox.batch s WHERE s.generation = g.generation AND s.kind = 'stream' ORDER BY s.batch_id DESC LIMIT 1
    ) n
)
DELETE FROM outbox.batch d
WHERE d.batch_id IN (
    SELECT b.batch_id
    FROM outbox.batch b
    LEFT JOIN newest USING (generation)
    WHERE b.batch_id < %(floor)s - 1
      AND b.created_at < now() - make_interval(secs => %(keep_s)s)
      AND NOT EXISTS (SELECT FROM outbox.generation g WHERE g.from_batch = b.batch_id)
      AND NOT EXISTS (SELECT FROM outbox.lane l WHERE l.cursor_batch = b.batch_id)
      AND NOT EXISTS (SELECT FROM outbox.lane_epoch e WHERE e.from_batch - 1 = b.batch_id)
      AND (b.kind <> 'stream' OR b.batch_id < newest.batch_id)
    ORDER BY b.batch_id
    LIMIT %(rows)s)
