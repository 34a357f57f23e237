-- The session in which retention works, and the lock that it holds there.

-- name: open
-- If the client dies while the server waits for a lock, the server must end the wait.
SELECT set_config('lock_timeout', %(lock_timeout)s, false), set_config('client_connection_check_interval', '5s', false)

-- name: lock
SELECT pg_try_advisory_lock(hashtextextended('outbox.retention', 0))

-- name: may_drop
SELECT current_user::text, has_function_privilege('outbox.drop_partition(text)', 'EXECUTE'),
       has_function_privilege('outbox.remove_open_letters(double precision, bigint, bigint, integer)', 'EXECUTE'),
       has_table_privilege('outbox.session_output', 'SELECT') AND has_column_privilege('outbox.parked', 'session_key', 'SELECT')

-- name: ended
SELECT outbox.end_retention(%(failed)s)
