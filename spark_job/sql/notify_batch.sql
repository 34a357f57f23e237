-- The newest batch and the lanes that have rows, `7 0,3,12`: 1,024 lanes take 4 of the 8 kB that a payload may have.
SELECT pg_notify('outbox_batch', %(batch_id)s::text || ' ' || %(lanes)s)
