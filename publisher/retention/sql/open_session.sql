-- A client that dies while the server waits for a lock must not leave the wait behind.
SELECT set_config('lock_timeout', %(lock_timeout)s, false), set_config('client_connection_check_interval', '5s', false)
