SELECT FROM outbox.run WHERE run_id = %(run_id)s
