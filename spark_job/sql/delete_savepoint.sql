UPDATE outbox.savepoint SET deleted_at = clock_timestamp() WHERE name = %(name)s AND deleted_at IS NULL
