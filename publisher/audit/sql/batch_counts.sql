-- What the ledger says of each batch, and what its rows say. Either side may be missing.
SELECT coalesce(b.batch_id, r.batch_id), b.batch_id IS NULL, b.sessions, b.output_events, b.output_bytes,
       coalesce(r.sessions, 0), coalesce(r.events, 0), coalesce(r.bytes, 0)
FROM (
    SELECT * FROM outbox.batch WHERE batch_id >= %(from_batch)s AND batch_id <= %(to_batch)s
) b
FULL JOIN (
    SELECT o.batch_id, sum(cardinality(o.session_ends)) AS sessions, sum(cardinality(o.topics)) AS events,
           sum((SELECT coalesce(sum(length(v)), 0) FROM unnest(o."values") v)) AS bytes
    FROM outbox.session_output o
    WHERE o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s
    GROUP BY o.batch_id
) r ON r.batch_id = b.batch_id
WHERE b.batch_id IS NULL
   OR (b.sessions, b.output_events, b.output_bytes) IS DISTINCT FROM (coalesce(r.sessions, 0), coalesce(r.events, 0), coalesce(r.bytes, 0))
ORDER BY 1
