COPY outbox.replay_key (replay_id, session_key) FROM STDIN
