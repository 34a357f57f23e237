-- Transactions that hold a lock on the outputs, oldest first. Their statements are not shown: they may hold data.
SELECT DISTINCT a.pid, coalesce(nullif(a.application_name, ''), 'unnamed'), coalesce(a.usename::text, '?'),
       coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::double precision AS age_s
FROM pg_locks l
JOIN pg_stat_activity a USING (pid)
JOIN pg_class c ON c.oid = l.relation
WHERE l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) AND l.granted AND l.pid <> pg_backend_pid()
  AND (c.oid = 'outbox.session_output'::regclass OR c.relname = %(partition)s)
ORDER BY age_s DESC
LIMIT 5
