-- The settings of every session of both services.

-- name: set
-- All settings that change the meaning, the result or the rights of our statements, whatever the server, role, database, DSN or environment
-- set. Settings that change only speed or the server's log stay the administrator's choice. Set with SQL, because a pooler refuses or drops
-- startup options. Returns each setting with its present value.
SELECT json_object_agg(name, set_config(name, value, false))
FROM (
    SELECT name, value
    FROM (
        VALUES
            ('synchronous_commit', 'on'),
            -- A service that is suspended inside a transaction must not hold the writer lock for ever.
            ('idle_in_transaction_session_timeout', %(idle)s),
            ('lock_timeout', %(lock)s),
            -- The job waits for Spark and for input, and LISTEN for notifications. A batch or an audit may take any time.
            ('idle_session_timeout', '0'),
            ('statement_timeout', '0'),
            ('transaction_timeout', '0'),
            -- If a client vanishes in the middle of a COPY, the server must notice, or it would hold the writer lock for two hours.
            ('tcp_keepalives_idle', '10'),
            ('tcp_keepalives_interval', '5'),
            ('tcp_keepalives_count', '3'),
            ('tcp_user_timeout', '30000'),
            -- Statements after the wait for the writer lock must see the commit of its last holder.
            ('default_transaction_isolation', 'read committed'),
            ('default_transaction_deferrable', 'off'),
            ('exit_on_error', 'off'),
            ('search_path', 'pg_catalog'),
            -- The text forms of values: COPY sends UTF-8, and psycopg knows one form of each type.
            ('client_encoding', 'UTF8'),
            ('timezone', 'UTC'),
            ('timezone_abbreviations', 'Default'),
            ('datestyle', 'ISO, MDY'),
            ('intervalstyle', 'postgres'),
            ('bytea_output', 'hex'),
            ('extra_float_digits', '1'),
            ('array_nulls', 'on'),
            ('xmlbinary', 'base64'),
            ('xmloption', 'content'),
            ('lc_monetary', 'C'),
            ('lc_numeric', 'C'),
            ('lc_time', 'C'),
            -- The meaning of SQL.
            ('standard_conforming_strings', 'on'),
            ('backslash_quote', 'safe_encoding'),
            ('transform_null_equals', 'off'),
            ('quote_all_identifiers', 'off'),
            ('row_security', 'on'),
            ('restrict_nonsystem_relation_kind', ''),
            ('gin_fuzzy_search_limit', '0'),
            ('plpgsql.extra_errors', 'none'),
            -- The locks of a statement must not grow with the number of partitions.
            ('enable_partition_pruning', 'on'),
            ('plan_cache_mode', 'auto')
    ) AS fixed (name, value)
    -- Not every server has every setting; those of plpgsql exist once it is loaded.
    WHERE current_setting(name, true) IS NOT NULL OR name LIKE 'plpgsql.%%'
    UNION ALL
    SELECT
        s.name,
        CASE
            -- lz4 costs a third of pglz for nearly the same size. It is used only if the server has it and an administrator chose nothing
            -- else.
            WHEN s.name = 'default_toast_compression' AND s.source = 'default' AND 'lz4' = ANY(s.enumvals) THEN 'lz4'
            -- If a whole server or database is read-only, that has a reason, and the services wait. If only this login is set read-only,
            -- the setting is overridden as others are.
            WHEN s.name = 'default_transaction_read_only' AND s.source IN ('user', 'database user', 'client', 'session') THEN 'off'
            -- The database's own tablespace may not be named when a partitioned table is created.
            WHEN s.name = 'default_tablespace' AND s.setting = own.spcname THEN ''
            ELSE s.setting
        END
    FROM pg_catalog.pg_settings s
    CROSS JOIN (
        SELECT t.spcname
        FROM pg_catalog.pg_database d
        JOIN pg_catalog.pg_tablespace t ON t.oid = d.dattablespace
        WHERE d.datname = current_database()
    ) AS own
    WHERE s.name IN ('default_toast_compression', 'default_transaction_read_only', 'default_tablespace')
) AS wanted (name, value)

-- name: read
-- The present values, in another transaction, of the settings that `set` returned.
SELECT json_object_agg(name, current_setting(name, true)) FROM unnest(%(names)s::text[]) AS name

-- name: backend_pid
SELECT pg_backend_pid()

-- name: database_exists
SELECT EXISTS (SELECT FROM pg_catalog.pg_database d WHERE d.datname = %(database)s)
