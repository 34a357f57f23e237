-- Commit ids of these batches, and the ledger's bounds.
SELECT (SELECT min(batch_id) FROM outbox.batch) AS first, (SELECT max(batch_id) FROM outbox.batch) AS last,
    (SELECT jsonb_object_agg(b.batch_id, b.commit_id) FROM outbox.batch b WHERE b.batch_id = ANY (%(batches)s::bigint[])) AS commits
