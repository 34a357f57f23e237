-- Commit ids of these batches, the ledger's bounds, what was delivered of lost batches as somebody has accepted, and the oldest lane epoch.
SELECT (SELECT min(batch_id) FROM outbox.batch) AS first, (SELECT max(batch_id) FROM outbox.batch) AS last,
    (SELECT jsonb_object_agg(b.batch_id, b.commit_id) FROM outbox.batch b WHERE b.batch_id = ANY (%(batches)s::bigint[])) AS commits,
    (SELECT jsonb_agg(a) FROM outbox.generation g CROSS JOIN LATERAL jsonb_array_elements(g.accepted_deliveries) a) AS accepted,
    (SELECT min(epoch) FROM outbox.lane_epoch) AS first_epoch
