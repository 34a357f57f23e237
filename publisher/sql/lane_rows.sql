-- The upper bound comes out of the ledger and the epochs themselves, so that nothing has to be read before the rows.
-- batch_id twice: the row comparison walks the index, the plain one prunes partitions.
-- Bounded by what the rows take, too, before any wide column is fetched: a row is left out where those before it reach `bytes`.
-- A size is without the wide columns' detoasting, so a compressed one is a guess: `expansion` times what is stored.
SELECT r.batch_id, r.session_key, r.revision, r.session_topic_ids, r.session_partitions, r.session_ends, r.session_outputs,
       r.topics, r."values", r.keys, r.headers, r.partitions, r.timestamps_ms, r.size
FROM (
    SELECT s.*, sum(s.size) OVER (ORDER BY s.batch_id, s.session_key ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM (
        SELECT o.*,
               least(pg_column_size(o."values")::bigint * CASE WHEN pg_column_compression(o."values") IS NULL THEN 1 ELSE %(expansion)s END
                     + coalesce(pg_column_size(o.keys), 0) + coalesce(pg_column_size(o.headers), 0), 1073741824)::integer AS size
        FROM outbox.session_output o
        WHERE o.lane = %(lane)s
          AND o.batch_id >= %(from_batch)s
          AND o.batch_id <= least(%(to_batch)s, (SELECT max(b.batch_id) FROM outbox.batch b),
                                  (SELECT min(e.from_batch) - 1 FROM outbox.lane_epoch e WHERE e.epoch > %(epoch)s))
          AND (o.batch_id, o.session_key) > (%(from_batch)s, %(from_key)s)
        ORDER BY o.batch_id, o.session_key
        LIMIT %(rows)s
    ) s
) r
WHERE coalesce(r.before, 0) < %(bytes)s
ORDER BY r.batch_id, r.session_key
