SELECT (SELECT coalesce(max(b.batch_id), 0) FROM outbox.batch b),
       (SELECT e.lanes FROM outbox.lane_epoch e ORDER BY e.epoch DESC LIMIT 1)
