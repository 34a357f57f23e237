-- The operator log.

-- name: record
-- Login, client address and time are the database's to say: no service role may write those columns.
INSERT INTO outbox.operation (os_user, host, command, arguments, result)
VALUES (%(os_user)s, %(host)s, %(command)s, %(arguments)s, %(result)s)
