-- The lanes of an epoch that have work or a holder, and who holds them. One that is through keeps its holder until the epoch is over,
-- so that the last lanes do not move between the processes. A lease of one's own counts while the heartbeat makes its connection anew.
SELECT s.lane, s.holder, s.ended
FROM (
    SELECT p.lane, CASE WHEN p.held OR (p.lease_holder = %(me)s AND p.lease_until >= now()) THEN p.lease_holder END AS holder, p.ended
    FROM outbox.lane_position p
    WHERE p.epoch = %(epoch)s
) s
WHERE s.holder IS NOT NULL OR NOT s.ended
ORDER BY s.lane
