SELECT l.batch_id, l.problem = 'time', l.detail
FROM outbox.audit_ledger l
WHERE l.problem IN ('offsets', 'time') AND l.batch_id >= %(from_batch)s AND l.batch_id <= %(to_batch)s
ORDER BY l.batch_id
