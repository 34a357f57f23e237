SELECT l.seq, l.cursor_batch, l.cursor_key, l.cursor_commit_id, l.sessions, l.events, l.stopped_reason IS NOT NULL,
       coalesce((SELECT max(d.seq) FROM outbox.delivery d WHERE d.epoch = l.epoch AND d.lane = l.lane), 0)
FROM outbox.lane l
WHERE l.epoch = %(epoch)s AND l.lane = %(lane)s
