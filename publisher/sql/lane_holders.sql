-- The lanes of an epoch that have work or a holder, and who holds them. One that is through keeps its holder until the epoch is over,
-- so that the last lanes do not move between the processes.
SELECT s.lane, s.holder, s.through
FROM (
    SELECT l.lane,
           CASE WHEN l.lease_until >= now() AND (
               l.lease_holder = %(me)s
               OR l.lease_backend_start < pg_postmaster_start_time()
               OR EXISTS (
                   SELECT FROM pg_stat_activity a
                   WHERE a.pid = l.lease_backend_pid AND (a.backend_start = l.lease_backend_start) IS NOT FALSE
               )
           ) THEN l.lease_holder END AS holder,
           coalesce(l.cursor_key IS NULL AND l.cursor_batch = (
               SELECT min(n.from_batch) - 1 FROM outbox.lane_epoch n WHERE n.epoch > l.epoch), false) AS through
    FROM outbox.lane l
    WHERE l.epoch = %(epoch)s
) s
WHERE s.holder IS NOT NULL OR NOT s.through
ORDER BY s.lane
