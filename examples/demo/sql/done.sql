-- How far the newest stream row says the input was read: one row a partition.
SELECT g.topics ->> t.topic_id AS topic, p.key::integer AS partition, p.value::bigint AS done
FROM (SELECT * FROM outbox.batch WHERE kind = 'stream' ORDER BY batch_id DESC LIMIT 1) b
JOIN outbox.generation g USING (generation)
CROSS JOIN LATERAL jsonb_each(b.end_offsets) AS t (topic_id, partitions)
CROSS JOIN LATERAL jsonb_each_text(t.partitions) AS p (key, value)
