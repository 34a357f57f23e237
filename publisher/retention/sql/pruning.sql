-- Deletes what the ledger and the logs no longer need, in steps.

-- name: floor
-- Below it every output is gone and delivered. Also below every lane that still has to deliver, should somebody have dropped a table by hand.
SELECT least(
    (SELECT min(p.from_batch) FROM outbox.output_partition p),
    (SELECT min(CASE WHEN p.stopped_why = 'resuming' THEN p.from_batch - 1 ELSE p.through_batch END)
     FROM outbox.lane_position p
     WHERE p.stopped_why = 'resuming' OR NOT p.ended),
    (SELECT min(greatest(r.from_batch, r.cursor_batch)) FROM outbox.replay r WHERE r.state IN ('running', 'paused')),
    (SELECT min(p.batch_id) FROM outbox.parked p WHERE p.state = 'parked'),
    (SELECT max(b.batch_id) FROM outbox.batch b))

-- name: batches
-- One step through the ledger: looks at the rows after `after` and deletes those that nothing names. What stays: a generation that went on from it,
-- a lane's cursor, the batch before an epoch, and each generation's newest stream row, which is a position to continue from. A savepoint holds its
-- position itself. The row right before the floor stays, too: whoever sends from the floor on continues after it.
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

-- name: lanes
SELECT l.epoch, l.lane FROM outbox.lane l ORDER BY l.epoch, l.lane

-- name: deliveries
-- One step through a lane's deliveries: deletes the oldest, up to the first one that must stay, so that what is left is a chain that begins after
-- `lane.pruned_seq`. The newest always stays, and what a lane that was set back had already delivered. Resumes stay: `resumes` deletes them.
-- Returns how many were deleted, and whether the next step may find more.
-- Bounds are scalar subqueries: a join leaves the planner free to walk over all that former steps deleted.
WITH looked_at AS MATERIALIZED (
    SELECT d.seq,
           d.committed_at >= now() - make_interval(secs => %(keep_s)s)
               OR d.seq = (SELECT max(n.seq) FROM outbox.delivery n WHERE n.epoch = %(epoch)s AND n.lane = %(lane)s)
               OR d.to_batch > (SELECT l.cursor_batch FROM outbox.lane l WHERE l.epoch = %(epoch)s AND l.lane = %(lane)s) AS stays
    FROM outbox.delivery d
    WHERE d.epoch = %(epoch)s AND d.lane = %(lane)s
      AND d.seq > (SELECT l.pruned_seq FROM outbox.lane l WHERE l.epoch = %(epoch)s AND l.lane = %(lane)s)
    ORDER BY d.seq
    LIMIT %(rows)s
), bounds AS MATERIALIZED (
    SELECT min(a.seq) AS first_seq, coalesce(min(a.seq) FILTER (WHERE a.stays) - 1, max(a.seq)) AS pruned_seq,
           count(*) = %(rows)s AND NOT bool_or(a.stays) AS more
    FROM looked_at a
), moved AS (
    UPDATE outbox.lane l
    SET pruned_seq = b.pruned_seq
    FROM bounds b
    WHERE l.epoch = %(epoch)s AND l.lane = %(lane)s AND l.pruned_seq < b.pruned_seq
), deleted AS (
    DELETE FROM outbox.delivery d
    WHERE d.epoch = %(epoch)s AND d.lane = %(lane)s AND d.kind = 'delivery'
      AND d.seq >= (SELECT b.first_seq FROM bounds b) AND d.seq <= (SELECT b.pruned_seq FROM bounds b)
    RETURNING d.seq
)
SELECT (SELECT count(*) FROM deleted), coalesce(b.more, false) FROM bounds b

-- name: resumes
-- Resumes whose deliveries are pruned and whose rows are gone on both sides: before that the audit needs them to tell what they skipped or repeated.
DELETE FROM outbox.delivery d
USING outbox.lane l
WHERE d.epoch = l.epoch AND d.lane = l.lane AND d.seq <= l.pruned_seq AND d.kind = 'resume'
  AND greatest(d.after_batch, d.to_batch) < %(floor)s

-- name: parked
-- One step through the rows that were requeued or discarded. They stay while their output or their copy is kept, because the audit needs them.
-- The lane counts them: Kafka's progress records do, too.
WITH deleted AS (
    DELETE FROM outbox.parked d
    WHERE (d.batch_id, d.session_key) IN (
        SELECT p.batch_id, p.session_key FROM outbox.parked p
        WHERE p.batch_id < %(floor)s AND p.state <> 'parked' AND coalesce(p.requeued_batch, 0) < %(floor)s
          AND p.state_changed_at < now() - make_interval(secs => %(keep_s)s)
        ORDER BY p.batch_id, p.session_key
        LIMIT %(rows)s)
    RETURNING d.epoch, d.lane
), counted AS (
    UPDATE outbox.lane l SET pruned_parked = l.pruned_parked + n.rows
    FROM (SELECT d.epoch, d.lane, count(*) AS rows FROM deleted d GROUP BY d.epoch, d.lane) n
    WHERE l.epoch = n.epoch AND l.lane = n.lane
)
SELECT FROM deleted

-- name: epochs
-- Lane epochs before the newest whose rows are gone, whose every lane came to the end, and which ended long ago: the oldest ones, so that what is
-- left has no hole. With their lanes and what is left of their deliveries. One with parked rows waits until these are gone.
WITH ended AS MATERIALIZED (
    SELECT e.epoch
    FROM outbox.epoch_range e
    WHERE e.to_batch < %(floor)s
      AND (SELECT min(n.created_at) FROM outbox.lane_epoch n WHERE n.epoch > e.epoch) < now() - make_interval(secs => %(keep_s)s)
      AND e.epoch < ALL (SELECT p.epoch FROM outbox.lane_position p WHERE NOT p.ended OR p.stopped_why IS NOT NULL OR p.held)
      AND (e.epoch < (SELECT min(p.epoch) FROM outbox.parked p)) IS NOT FALSE
), deliveries AS (
    DELETE FROM outbox.delivery d USING ended e WHERE d.epoch = e.epoch
), lanes AS (
    DELETE FROM outbox.lane l USING ended e WHERE l.epoch = e.epoch RETURNING l.epoch
)
SELECT coalesce(array_agg(e.epoch ORDER BY e.epoch), '{}') FROM ended e

-- name: epoch_rows
DELETE FROM outbox.lane_epoch d WHERE d.epoch = ANY (%(epochs)s)

-- name: operations
DELETE FROM outbox.operation d
WHERE d.operation_id IN (
    SELECT o.operation_id FROM outbox.operation o
    WHERE o.at < now() - make_interval(secs => %(keep_s)s)
    ORDER BY o.operation_id
    LIMIT %(rows)s)

-- name: processes
DELETE FROM outbox.publisher_process d
WHERE d.process_id IN (
    SELECT p.process_id FROM outbox.publisher_process p
    WHERE coalesce(p.ended_at, p.alive_until) < now() - make_interval(secs => %(keep_s)s)
    LIMIT %(rows)s)

-- name: replay_keys
DELETE FROM outbox.replay_key d
WHERE (d.replay_id, d.session_key) IN (
    SELECT k.replay_id, k.session_key
    FROM outbox.replay r
    JOIN outbox.replay_key k USING (replay_id)
    WHERE r.state IN ('done', 'cancelled') AND r.state_changed_at < now() - make_interval(secs => %(keep_s)s)
    LIMIT %(rows)s)

-- name: replays
DELETE FROM outbox.replay d
WHERE d.replay_id IN (
    SELECT r.replay_id FROM outbox.replay r
    WHERE r.state IN ('done', 'cancelled') AND r.state_changed_at < now() - make_interval(secs => %(keep_s)s)
      AND NOT EXISTS (SELECT FROM outbox.replay_key k WHERE k.replay_id = r.replay_id)
    LIMIT %(rows)s)
