-- The operator log.

-- name: record
-- The database fills in login, client address and time, because no service role may write those columns.
INSERT INTO outbox.operation (os_user, host, command, arguments, result)
VALUES (%(os_user)s, %(host)s, %(command)s, %(arguments)s, %(result)s)
