INSERT INTO outbox.request (run_id, kind, arguments)
VALUES (%(run_id)s, %(kind)s, %(arguments)s)
RETURNING request_id
