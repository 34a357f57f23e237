-- One migration at a time, each statement bounded. The lock goes with the connection.
SELECT set_config('statement_timeout', '60s', false), pg_advisory_lock(hashtext('outbox.migrate'))
