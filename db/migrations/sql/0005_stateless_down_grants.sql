-- The view was made anew by 0004_audit_up.sql.
GRANT SELECT ON outbox.event TO outbox_writer, outbox_publisher, outbox_auditor;
