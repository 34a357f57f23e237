-- The operator log: a row for each transaction in which a command changed something.
-- Login, address and time have defaults, and no service role may write them: what a row says of those is the database's word.
CREATE TABLE outbox.operation (
    operation_id bigint      GENERATED ALWAYS AS IDENTITY,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    login        text        NOT NULL DEFAULT session_user,
    client       inet                 DEFAULT inet_client_addr(),
    os_user      text        NOT NULL,
    host         text        NOT NULL,
    command      text        NOT NULL,
    arguments    jsonb       NOT NULL,
    result       jsonb       NOT NULL,
    CONSTRAINT operation_pkey PRIMARY KEY (operation_id),
    CONSTRAINT operation_named CHECK (command <> '' AND os_user <> '' AND host <> '')
);
COMMENT ON TABLE outbox.operation IS
    'The operator log: what commands changed, each row in the transaction of its change. Append-only: no service role updates or deletes.';
COMMENT ON COLUMN outbox.operation.operation_id IS 'number of the row';
COMMENT ON COLUMN outbox.operation.at IS 'when, by the clock of Postgres';
COMMENT ON COLUMN outbox.operation.login IS 'the Postgres login, whatever SET ROLE said';
COMMENT ON COLUMN outbox.operation.client IS 'address from which the connection came; NULL: a socket on the server itself';
COMMENT ON COLUMN outbox.operation.os_user IS 'user of the process, as the process says';
COMMENT ON COLUMN outbox.operation.host IS 'host of the process, as the process says';
COMMENT ON COLUMN outbox.operation.command IS 'the command, without its options';
COMMENT ON COLUMN outbox.operation.arguments IS 'what it was asked for, without secrets; session keys only as their number';
COMMENT ON COLUMN outbox.operation.result IS 'what this transaction changed';
GRANT INSERT (os_user, host, command, arguments, result) ON outbox.operation TO outbox_writer, outbox_publisher;
GRANT SELECT ON outbox.operation TO outbox_auditor;

CREATE VIEW outbox.audit_operation AS
SELECT o.operation_id, o.at, o.login, o.client, o.os_user, o.host, o.command, o.arguments, o.result
FROM outbox.operation o
ORDER BY o.operation_id DESC;
COMMENT ON VIEW outbox.audit_operation IS
    'What people had the commands change, newest first; LIMIT reads no more than it returns. Each row committed with its change.';
COMMENT ON COLUMN outbox.audit_operation.operation_id IS 'number of the row';
COMMENT ON COLUMN outbox.audit_operation.at IS 'when, by the clock of Postgres';
COMMENT ON COLUMN outbox.audit_operation.login IS 'the Postgres login';
COMMENT ON COLUMN outbox.audit_operation.client IS 'address from which the connection came; NULL: a socket on the server itself';
COMMENT ON COLUMN outbox.audit_operation.os_user IS 'user of the process, as the process says';
COMMENT ON COLUMN outbox.audit_operation.host IS 'host of the process, as the process says';
COMMENT ON COLUMN outbox.audit_operation.command IS 'the command, without its options';
COMMENT ON COLUMN outbox.audit_operation.arguments IS 'what it was asked for';
COMMENT ON COLUMN outbox.audit_operation.result IS 'what this transaction changed';
GRANT SELECT ON outbox.audit_operation TO outbox_auditor;
