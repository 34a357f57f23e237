-- Each output of a session key, in order, with the offsets of the transaction that carried it: NULL where that is not recorded (any more).
SELECT e.batch_id, e.outbox_id, e.revision, e.topic,
       CASE WHEN e.delivery_state = 'delivered' AND d.seq IS NULL AND e.skipped THEN 'skipped' ELSE e.delivery_state END AS state,
       d.committed_at AS delivered_at,
       CASE WHEN e.target_partition IS NULL THEN d.kafka_offsets -> e.topic
            WHEN d.kafka_offsets #> ARRAY[e.topic, e.target_partition::text] IS NOT NULL
               THEN jsonb_build_object(e.target_partition, d.kafka_offsets #> ARRAY[e.topic, e.target_partition::text]) END AS kafka_offsets
FROM outbox.event e
LEFT JOIN outbox.delivery d ON d.epoch = e.epoch AND d.lane = e.lane AND d.seq = e.delivery_seq
WHERE e.session_key = %(session_key)s
  AND (%(topic)s::text IS NULL OR e.topic = %(topic)s::text)
ORDER BY e.batch_id, e.session_end_offset, split_part(e.outbox_id, '/', 4)::integer
