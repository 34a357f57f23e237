-- Dead letters: what they take, which of them retention removes, and what it has removed.

-- name: disk
SELECT pg_total_relation_size('outbox.dead_letter'), has_table_privilege('outbox.dead_letter', 'SELECT')

-- name: kept
-- Closed and open letters, the bytes of their rows as they are stored, and how many are past the age that is allowed. Reads every row once.
SELECT count(*) FILTER (WHERE k.state <> 'open'), count(*) FILTER (WHERE k.state = 'open'),
       coalesce(sum(k.bytes), 0)::bigint,
       count(*) FILTER (WHERE k.is_old AND k.state <> 'open'), count(*) FILTER (WHERE k.is_old AND k.state = 'open')
FROM (
    SELECT d.state, coalesce(CASE d.state WHEN 'open' THEN d.created_at ELSE d.state_changed_at END
                                 < now() - make_interval(secs => %(keep_s)s::double precision), false) AS is_old,
           200 + pg_column_size(d.detail) + pg_column_size(d.event_values) + pg_column_size(d.event_offsets) + pg_column_size(d.event_times_ms)
               + coalesce(pg_column_size(d.event_types), 0) AS bytes
    FROM outbox.dead_letter d
) k

-- name: remove
-- One step through the letters by number, those that are open or the others: removes what is past the age that is allowed, and then the oldest
-- until `excess` bytes are gone. Returns how many went, their bytes, the last number looked at, and whether the next step may find more.
WITH looked_at AS MATERIALIZED (
    SELECT d.dead_letter_id,
           coalesce(CASE d.state WHEN 'open' THEN d.created_at ELSE d.state_changed_at END
                        < now() - make_interval(secs => %(keep_s)s::double precision), false) AS is_old,
           200 + pg_column_size(d.detail) + pg_column_size(d.event_values) + pg_column_size(d.event_offsets) + pg_column_size(d.event_times_ms)
               + coalesce(pg_column_size(d.event_types), 0) AS bytes
    FROM outbox.dead_letter d
    WHERE d.dead_letter_id > %(after)s AND (d.state = 'open') = %(open)s
    ORDER BY d.dead_letter_id
    LIMIT %(rows)s
), chosen AS MATERIALIZED (
    SELECT a.dead_letter_id, a.bytes
    FROM (
        SELECT l.*, coalesce(sum(l.bytes) OVER (ORDER BY l.dead_letter_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
        FROM looked_at l
    ) a
    WHERE a.is_old OR a.before < %(excess)s
), deleted AS (
    DELETE FROM outbox.dead_letter d
    USING chosen c
    -- The state again: somebody may have changed it since it was looked at.
    WHERE d.dead_letter_id = c.dead_letter_id AND (d.state = 'open') = %(open)s
    RETURNING d.dead_letter_id, d.reason, d.state, d.event_count, d.created_at, c.bytes
), counted AS (
    INSERT INTO outbox.removed_letters AS r (reason, state, letters, events, newest_id, newest_at)
    SELECT d.reason, d.state, count(*), sum(d.event_count), max(d.dead_letter_id), max(d.created_at) FROM deleted d GROUP BY d.reason, d.state
    ON CONFLICT ON CONSTRAINT removed_letters_pkey DO UPDATE
    SET letters = r.letters + excluded.letters, events = r.events + excluded.events, newest_id = greatest(r.newest_id, excluded.newest_id),
        newest_at = greatest(r.newest_at, excluded.newest_at), removed_at = now()
)
SELECT (SELECT count(*) FROM deleted), (SELECT coalesce(sum(d.bytes), 0)::bigint FROM deleted d), coalesce(max(a.dead_letter_id), 0),
       count(*) = %(rows)s
FROM looked_at a
