-- The settings of a connection of the console.

-- name: set
-- The session is read-only, so that no query of the console can write, even a wrong one. JIT compiling would take longer than these
-- queries.
SELECT set_config('default_transaction_read_only', 'on', false), set_config('statement_timeout', %(timeout)s, false),
       set_config('lock_timeout', %(timeout)s, false), set_config('idle_in_transaction_session_timeout', %(idle)s, false),
       set_config('jit', 'off', false), set_config('TimeZone', 'UTC', false)

-- name: who
SELECT current_user, pg_has_role(current_user, 'outbox_auditor', 'usage') OR bool_and(has_table_privilege('outbox.' || t, 'SELECT'))
FROM unnest(ARRAY['dead_letter', 'run', 'writer']) AS t
