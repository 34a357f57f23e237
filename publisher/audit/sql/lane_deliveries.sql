SELECT d.seq, d.after_batch, d.after_key, d.to_batch, d.to_key, d.kafka_offsets
FROM outbox.delivery d
WHERE d.epoch = %(epoch)s AND d.lane = %(lane)s AND d.seq >= %(from_seq)s AND d.to_batch >= %(from_batch)s
  AND d.kind = 'delivery' AND d.events > 0
ORDER BY d.seq
LIMIT %(deliveries)s
