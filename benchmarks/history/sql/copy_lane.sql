COPY outbox.lane (epoch, lane, seq, cursor_batch, cursor_key, cursor_commit_id, sessions, events, mirrored_at) FROM STDIN
