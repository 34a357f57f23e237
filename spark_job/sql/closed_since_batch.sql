-- What the ledger says of the batches after one: sessions, outputs.
SELECT coalesce(sum(sessions), 0)::bigint, coalesce(sum(output_events), 0)::bigint
FROM outbox.batch
WHERE batch_id > %(batch_id)s AND kind = 'stream'
