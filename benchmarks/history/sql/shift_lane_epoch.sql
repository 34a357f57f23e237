UPDATE outbox.lane_epoch SET created_at = created_at + %(by)s
