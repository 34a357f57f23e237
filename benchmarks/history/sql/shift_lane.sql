UPDATE outbox.lane SET mirrored_at = mirrored_at + %(by)s
