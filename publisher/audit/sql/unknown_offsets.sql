-- Deliveries of the batches from one on that do not say their offsets, and lanes whose deliveries of these batches are pruned.
SELECT (SELECT count(*) FROM outbox.delivery d WHERE d.to_batch >= %(from_batch)s AND d.events > 0 AND d.kafka_offsets IS NULL)
     + (SELECT count(*)
        FROM outbox.lane_position p
        JOIN outbox.lane l ON l.epoch = p.epoch AND l.lane = p.lane AND l.pruned_seq > 0
        LEFT JOIN LATERAL (
            SELECT d.after_batch FROM outbox.delivery d
            WHERE d.epoch = l.epoch AND d.lane = l.lane AND d.seq > l.pruned_seq
            ORDER BY d.seq LIMIT 1
        ) f ON true
        WHERE (p.to_batch >= %(from_batch)s OR p.to_batch IS NULL) AND (f.after_batch < %(from_batch)s) IS NOT TRUE)
