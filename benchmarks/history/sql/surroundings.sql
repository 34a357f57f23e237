SELECT current_setting('server_version'), (SELECT sum(sessions) FROM outbox.batch), (SELECT count(*) FROM outbox.batch), pg_database_size(current_database())
