-- What every session of both services is.

-- name: set
-- What every session of both services is, whatever server, role, database or DSN say. By SQL: a pooler refuses startup options, or drops them.
SELECT set_config('synchronous_commit', 'on', false),
       -- A service that is stopped inside a transaction must not hold the writer lock for ever.
       set_config('idle_in_transaction_session_timeout', %(idle)s, false),
       set_config('lock_timeout', %(lock)s, false),
       -- A client that vanished in the middle of a COPY: the server must notice it, or it holds the writer lock for two hours.
       set_config('tcp_keepalives_idle', '10', false),
       set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false),
       set_config('tcp_user_timeout', '30000', false),
       -- What is read after the writer lock was waited for must be what its last holder left.
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('timezone', 'UTC', false),
       set_config('search_path', 'pg_catalog', false),
       -- lz4 costs a third of pglz for nearly the same size. Not every server is built with it, and an administrator's choice stays.
       (SELECT set_config(s.name, CASE WHEN s.source = 'default' AND 'lz4' = ANY(s.enumvals) THEN 'lz4' ELSE s.setting END, false)
        FROM pg_catalog.pg_settings s
        WHERE s.name = 'default_toast_compression')

-- name: read
-- The settings of `set`, in its order, as they are in another transaction.
SELECT current_setting('synchronous_commit'),
       current_setting('idle_in_transaction_session_timeout'),
       current_setting('lock_timeout'),
       current_setting('tcp_keepalives_idle'),
       current_setting('tcp_keepalives_interval'),
       current_setting('tcp_keepalives_count'),
       current_setting('tcp_user_timeout'),
       current_setting('default_transaction_isolation'),
       current_setting('timezone'),
       current_setting('search_path'),
       current_setting('default_toast_compression')

-- name: backend_pid
SELECT pg_backend_pid()

-- name: database_exists
SELECT EXISTS (SELECT FROM pg_catalog.pg_database d WHERE d.datname = %(database)s)
