SELECT pg_notify('outbox_batch', %(batch_id)s::text)
