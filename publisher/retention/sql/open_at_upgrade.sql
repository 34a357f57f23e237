-- Batches with outputs that close after the beginning of what was open when the schema was upgraded to 0005, in input partitions of which
-- the job has read nothing since: with the next records there it writes the dead letters that are missing, and looks for outputs that
-- cover their events. `end` is exclusive; a batch that read nothing of an input partition closed nothing there.
WITH upgraded AS (
    SELECT coalesce(b.open_state, g.open_state) AS open_state
    FROM (SELECT generation, open_state FROM outbox.generation ORDER BY generation DESC LIMIT 1) g
    LEFT JOIN LATERAL (
        SELECT n.open_state FROM outbox.batch n WHERE n.generation = g.generation AND n.kind = 'stream' ORDER BY n.batch_id DESC LIMIT 1
    ) b ON true
)
SELECT t.topic_id, p.partition::integer, s.safe_offset, count(*), min(b.batch_id), max(b.batch_id)
FROM upgraded
CROSS JOIN LATERAL jsonb_each(upgraded.open_state) AS t (topic_id, partitions)
CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, open)
CROSS JOIN LATERAL (SELECT (p.open ->> 'safe')::bigint AS safe_offset) s
CROSS JOIN outbox.batch b
CROSS JOIN LATERAL (SELECT (b.end_offsets #>> ARRAY[t.topic_id, p.partition])::bigint AS end_offset) e
WHERE p.open ? 'upgraded'
  AND b.batch_id >= %(first_batch)s AND b.batch_id < %(end_batch)s AND b.kind = 'stream' AND b.sessions > 0
  AND e.end_offset > s.safe_offset
  AND e.end_offset > coalesce((b.start_offsets #>> ARRAY[t.topic_id, p.partition])::bigint, 0)
GROUP BY t.topic_id, p.partition, s.safe_offset
ORDER BY t.topic_id, p.partition::integer
