-- The newest stream batch of before this generation that had not read beyond any of these offsets; walks back from the newest one.
SELECT b.batch_id
FROM outbox.batch b
WHERE b.kind = 'stream' AND b.generation < %(generation)s
    AND NOT EXISTS (
        SELECT FROM jsonb_each(%(offsets)s::jsonb) AS t (topic_id, partitions)
        CROSS JOIN LATERAL jsonb_each_text(t.partitions) AS p (partition, first)
        WHERE coalesce((b.end_offsets -> t.topic_id ->> p.partition)::bigint, 0) > p.first::bigint)
ORDER BY b.batch_id DESC
LIMIT 1
