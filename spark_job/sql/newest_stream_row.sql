SELECT batch_id, end_offsets, open_state, created_at
FROM outbox.batch
WHERE generation = %(generation)s AND kind = 'stream'
ORDER BY batch_id DESC
LIMIT 1
