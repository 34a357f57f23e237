SELECT has_table_privilege('outbox.dead_letter', 'SELECT')
