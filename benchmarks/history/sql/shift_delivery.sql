UPDATE outbox.delivery SET committed_at = committed_at + %(by)s
