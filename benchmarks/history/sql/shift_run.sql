UPDATE outbox.run SET started_at = started_at + %(by)s, ended_at = ended_at + %(by)s
