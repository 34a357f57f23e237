INSERT INTO outbox.lane_epoch (epoch, from_batch, lanes)
SELECT 1, 1, %(lanes)s
WHERE NOT EXISTS (SELECT FROM outbox.lane_epoch)
