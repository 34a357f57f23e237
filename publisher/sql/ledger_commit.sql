SELECT b.commit_id FROM outbox.batch b WHERE b.batch_id = %(batch_id)s
