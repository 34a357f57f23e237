-- Batch ids are dense: each gap, as the first and the last id that are missing.
SELECT greatest(l.first_missing, %(from_batch)s), l.last_missing
FROM outbox.audit_ledger l
WHERE l.problem = 'missing' AND l.last_missing >= %(from_batch)s AND l.batch_id <= %(to_batch)s
ORDER BY l.batch_id
