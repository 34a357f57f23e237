SELECT outbox_uuid FROM outbox.identity
