SELECT o.topic_id, p.partition::integer, min(p.first_offset::bigint)
FROM outbox.bucket b
CROSS JOIN LATERAL jsonb_each(b.oldest_open) AS o (topic_id, partitions)
CROSS JOIN LATERAL jsonb_each_text(o.partitions) AS p (partition, first_offset)
WHERE b.generation = %(generation)s
GROUP BY o.topic_id, p.partition
