INSERT INTO outbox.lane_epoch (epoch, from_batch, lanes, created_at)
VALUES (%(epoch)s, %(from_batch)s, %(lanes)s, %(created_at)s)
