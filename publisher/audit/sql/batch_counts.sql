-- What the ledger says of each batch, and what its rows say, where these differ. Either side may be missing.
SELECT c.batch_id, NOT c.in_ledger, c.ledger_sessions, c.ledger_events, c.ledger_bytes, c.row_sessions, c.row_events, c.row_bytes
FROM outbox.check_batch_counts(%(from_batch)s, %(to_batch)s) c
ORDER BY c.batch_id
