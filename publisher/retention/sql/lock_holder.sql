SELECT a.pid, a.application_name, a.backend_start, l.mode = 'ShareLock'
FROM pg_locks l
JOIN pg_stat_activity a USING (pid)
CROSS JOIN (SELECT hashtextextended('outbox.retention', 0) AS key) k
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND l.classid::bigint = (k.key >> 32) & 4294967295 AND l.objid::bigint = k.key & 4294967295
