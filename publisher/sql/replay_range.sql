-- What bounds a replay: the ledger's newest batch, the last one that every lane has passed whole, the batches whose rows are kept, by
-- partition (first, and last exclusive), the first batch committed since a time and the last one before another. A clock that stepped back
-- leaves no batch of the time out.
SELECT
    (SELECT coalesce(max(b.batch_id), 0) FROM outbox.batch b),
    (SELECT coalesce(min(p.through_batch), 0) FROM outbox.lane_position p WHERE NOT p.ended),
    (SELECT coalesce(array_agg(ARRAY[p.from_batch, p.to_batch + 1] ORDER BY p.from_batch), '{}')
     FROM outbox.output_partition p
     WHERE NOT p.detaching),
    (SELECT min(b.batch_id) FROM outbox.batch b WHERE b.created_at >= m.since),
    (SELECT max(b.batch_id) FROM outbox.batch b WHERE b.created_at < m.until)
FROM (SELECT
    coalesce(%(since)s::timestamptz, now() - make_interval(secs => %(since_age_s)s::double precision)) AS since,
    coalesce(%(until)s::timestamptz, now() - make_interval(secs => %(until_age_s)s::double precision)) AS until
) m
