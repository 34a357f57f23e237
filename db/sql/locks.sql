-- Advisory locks, which every login that may connect can take.

-- name: holder
-- A session that holds the lock; one whose login has no role of the outbox comes first.
SELECT a.pid, a.usename::text, a.application_name, a.backend_start, l.mode = 'ShareLock',
       EXISTS (SELECT FROM unnest(%(roles)s::text[]) r WHERE pg_has_role(a.usesysid, r, 'MEMBER'))
FROM pg_locks l
JOIN pg_stat_activity a USING (pid)
CROSS JOIN (SELECT hashtextextended(%(lock)s, 0) AS key) k
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND l.classid::bigint = (k.key >> 32) & 4294967295 AND l.objid::bigint = k.key & 4294967295
ORDER BY 6, 1
LIMIT 1
