-- The bounds beside the join prune partitions. Bounded by what the rows take, as lane_rows.sql.
SELECT r.batch_id, r.session_key, r.revision, r.session_topic_ids, r.session_partitions, r.session_ends, r.session_outputs,
       r.topics, r."values", r.keys, r.headers, r.partitions, r.timestamps_ms, r.size
FROM (
    SELECT s.*, sum(s.size) OVER (ORDER BY s.batch_id, s.session_key ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM (
        SELECT o.*,
               least(pg_column_size(o."values")::bigint * CASE WHEN pg_column_compression(o."values") IS NULL THEN 1 ELSE %(expansion)s END
                     + coalesce(pg_column_size(o.keys), 0) + coalesce(pg_column_size(o.headers), 0), 1073741824)::integer AS size
        FROM unnest(%(batch_ids)s::bigint[], %(session_keys)s::text[]) AS w (batch_id, session_key)
        JOIN outbox.session_output o ON o.batch_id = w.batch_id AND o.session_key = w.session_key
        WHERE o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s
    ) s
) r
WHERE coalesce(r.before, 0) < %(bytes)s
ORDER BY r.batch_id, r.session_key
