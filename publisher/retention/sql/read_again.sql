-- Batches with outputs that close at or after the oldest open session: a lost checkpoint reads that input again, and compares the dead letters
-- that it finds there with these outputs. `end` is exclusive; a batch that read nothing of an input partition closed nothing there.
WITH position AS (
    SELECT coalesce(b.safe_offsets, g.start_offsets) AS safe
    FROM outbox.generation g
    LEFT JOIN LATERAL (
        SELECT n.safe_offsets FROM outbox.batch n
        WHERE n.generation = g.generation AND n.kind = 'stream' AND n.spark_batch IS NOT NULL
        ORDER BY n.spark_batch DESC LIMIT 1) b ON true
    ORDER BY g.generation DESC
    LIMIT 1
)
SELECT t.topic_id, e.partition::integer, s.safe_offset, count(*), min(b.batch_id), max(b.batch_id)
FROM position
CROSS JOIN outbox.batch b
CROSS JOIN LATERAL jsonb_each(b.end_offsets) AS t (topic_id, ends)
CROSS JOIN LATERAL jsonb_each_text(t.ends) AS e (partition, end_offset)
CROSS JOIN LATERAL (SELECT coalesce((position.safe -> t.topic_id ->> e.partition)::bigint, 0) AS safe_offset) s
WHERE b.batch_id >= %(first_batch)s AND b.batch_id < %(end_batch)s AND b.kind = 'stream' AND b.sessions > 0
  AND e.end_offset::bigint > s.safe_offset
  AND e.end_offset::bigint > coalesce((b.start_offsets -> t.topic_id ->> e.partition)::bigint, 0)
GROUP BY t.topic_id, e.partition, s.safe_offset
ORDER BY t.topic_id, e.partition::integer
