-- Where the deliveries of the batches from one on begin in each topic partition; `unknown`: deliveries that do not say.
SELECT t.topic, p.partition::integer, min((p.bounds ->> 0)::bigint)
FROM outbox.delivery d
CROSS JOIN LATERAL jsonb_each(d.kafka_offsets) AS t (topic, partitions)
CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, bounds)
WHERE d.to_batch >= %(from_batch)s
GROUP BY t.topic, p.partition
