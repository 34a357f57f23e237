-- The settings of set_session.sql, in its order, as they are in another transaction.
SELECT current_setting('synchronous_commit'),
       current_setting('idle_in_transaction_session_timeout'),
       current_setting('lock_timeout'),
       current_setting('tcp_keepalives_idle'),
       current_setting('tcp_keepalives_interval'),
       current_setting('tcp_keepalives_count'),
       current_setting('tcp_user_timeout'),
       current_setting('default_transaction_isolation'),
       current_setting('timezone'),
       current_setting('search_path')
