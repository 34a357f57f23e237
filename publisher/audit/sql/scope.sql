-- The ledger, and the first batch of each partition whose rows are kept: retention drops whole ones, of 10,000 batches each.
SELECT (SELECT min(b.batch_id) FROM outbox.batch b),
       (SELECT max(b.batch_id) FROM outbox.batch b),
       (SELECT coalesce(array_agg(p.from_batch ORDER BY p.from_batch), '{}') FROM outbox.output_partition p WHERE NOT p.detaching),
       (SELECT min(b.batch_id) FROM outbox.batch b WHERE b.created_at >= %(since)s)
