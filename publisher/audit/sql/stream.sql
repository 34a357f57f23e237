-- Each stream row continues the one before it in its generation: the next Spark batch from where the former ended, or a further part of it.
-- A partition that was new then begins at 0.
SELECT s.batch_id, s.generation, s.spark_batch, s.part, s.former_batch, s.former_spark_batch, s.former_part
FROM (
    SELECT b.batch_id, b.generation, b.spark_batch, b.part, b.start_offsets, b.end_offsets,
           lag(b.batch_id) OVER w AS former_batch, lag(b.spark_batch) OVER w AS former_spark_batch, lag(b.part) OVER w AS former_part,
           lag(b.start_offsets) OVER w AS former_start, lag(b.end_offsets) OVER w AS former_end
    FROM outbox.batch b
    WHERE b.kind = 'stream' AND b.batch_id >= %(from_batch)s AND b.batch_id <= %(to_batch)s
    WINDOW w AS (PARTITION BY b.generation ORDER BY b.spark_batch, b.part)
) s
WHERE s.former_batch IS NOT NULL
  AND NOT (
    s.batch_id > s.former_batch
    AND CASE s.spark_batch
        WHEN s.former_spark_batch THEN s.part = s.former_part + 1 AND s.start_offsets = s.former_start AND s.end_offsets = s.former_end
        ELSE s.spark_batch = s.former_spark_batch + 1 AND s.part = 0 AND (s.start_offsets = s.former_end OR (
            s.start_offsets @> s.former_end AND NOT EXISTS (
                SELECT FROM jsonb_each(s.start_offsets) AS t (id, partitions)
                CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, first)
                WHERE p.first <> '0' AND s.former_end #> ARRAY[t.id, p.partition] IS NULL)))
    END)
ORDER BY s.batch_id
