-- Rows that something names stay: a savepoint (also a deleted one: a foreign key), a generation that went on from it, a lane's cursor, the batch
-- before an epoch, and each generation's newest stream row with all its parts, which holds the greatest done. The row right before the floor
-- stays, too: whoever sends from the floor on goes on after it.
-- The newest are looked for once: a planner without statistics would read the whole ledger again for each of its rows.
WITH newest AS MATERIALIZED (
    SELECT n.generation, max(n.spark_batch) AS spark_batch
    FROM outbox.batch n
    WHERE n.kind = 'stream'
    GROUP BY n.generation
)
DELETE FROM outbox.batch d
WHERE d.batch_id IN (
    SELECT b.batch_id
    FROM outbox.batch b
    LEFT JOIN newest USING (generation)
    WHERE b.batch_id < %(floor)s - 1
      AND b.created_at < now() - make_interval(secs => %(keep_s)s)
      AND NOT EXISTS (SELECT FROM outbox.savepoint s WHERE s.batch_id = b.batch_id)
      AND NOT EXISTS (SELECT FROM outbox.generation g WHERE g.from_batch = b.batch_id)
      AND NOT EXISTS (SELECT FROM outbox.lane l WHERE l.cursor_batch = b.batch_id)
      AND NOT EXISTS (SELECT FROM outbox.lane_epoch e WHERE e.from_batch - 1 = b.batch_id)
      AND (b.kind <> 'stream' OR b.spark_batch < newest.spark_batch)
    ORDER BY b.batch_id
    LIMIT %(rows)s)
