SELECT d.epoch, d.lane, d.missing, d.detail
FROM outbox.check_delivery_chain d
WHERE d.to_batch >= %(from_batch)s AND coalesce(d.after_batch, 0) <= %(to_batch)s
ORDER BY d.epoch, d.lane, d.seq
