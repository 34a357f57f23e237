DROP VIEW outbox.audit_operation;
DROP TABLE outbox.operation;
