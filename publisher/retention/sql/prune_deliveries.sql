-- One step through a lane's deliveries: deletes the oldest, up to the first one that must stay, so that what is left is a chain that begins after
-- `lane.pruned_seq`. The newest always stays, and what a lane that was set back had already delivered. Resumes stay: prune_resumes.sql.
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
