SELECT outbox.ensure_partitions(%(first_batch)s, %(last_batch)s)
