-- The facts that `outbox-migrate check` reads from a server before there is an outbox. `facts` needs no right.

-- name: facts
SELECT
    current_setting('server_version_num')::integer AS version_number,
    current_setting('server_version') AS version,
    getdatabaseencoding()::text AS encoding,
    current_database()::text AS database,
    current_user::text AS login,
    pg_is_in_recovery() AS is_standby,
    current_setting('transaction_read_only') = 'on' AS is_read_only,
    has_database_privilege(current_database(), 'CREATE') AS may_create,
    (SELECT r.rolsuper OR r.rolcreaterole FROM pg_roles r WHERE r.rolname = current_user) AS may_make_roles,
    ARRAY(SELECT r.rolname::text FROM pg_roles r WHERE r.rolname = ANY(%(roles)s)) AS roles,
    ARRAY(
        SELECT r.rolname::text FROM pg_roles r WHERE r.rolname = ANY(%(roles)s) AND pg_has_role(r.oid, 'USAGE') ORDER BY r.rolname
    ) AS member_of,
    current_setting('fsync') = 'on' AS fsync,
    current_setting('full_page_writes') = 'on' AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS synchronous_standby_names,
    current_setting('max_locks_per_transaction')::integer AS max_locks,
    current_setting('max_prepared_transactions')::integer AS max_prepared,
    current_setting('max_connections')::integer AS max_connections,
    -- Only Postgres 16 and newer have reserved_connections.
    current_setting('superuser_reserved_connections')::integer
    + coalesce(current_setting('reserved_connections', true)::integer, 0) AS reserved,
    (SELECT r.rolconnlimit FROM pg_roles r WHERE r.rolname = current_user) AS login_limit,
    (SELECT d.datconnlimit FROM pg_database d WHERE d.datname = current_database()) AS database_limit,
    -- Connections of others: sessions of our own services are among the needed ones.
    (
        SELECT count(*)
        FROM pg_stat_activity a
        WHERE a.datid IS NOT NULL AND a.pid <> pg_backend_pid() AND a.application_name !~ '^(spark-job|publisher|outbox-migrate)'
    ) AS taken,
    -- By name, because to_regclass needs a right on the schema.
    (
        SELECT count(*)
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'outbox' AND c.relname = 'session_output'
    ) AS partitions,
    pg_backend_pid() AS backend_pid

-- name: identity
-- As outbox.server_identity() reads it.
SELECT
    (SELECT s.system_identifier FROM pg_control_system() s) AS system_identifier,
    CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_walfile_name(pg_current_wal_lsn()) END AS walfile
