SELECT coalesce(sum(b.sessions), 0)::bigint, coalesce(sum(b.output_events), 0)::bigint
FROM outbox.batch b
WHERE b.batch_id >= %(from_batch)s AND b.batch_id <= %(to_batch)s
