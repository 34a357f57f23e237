COPY outbox.delivery (epoch, lane, seq, after_batch, after_key, to_batch, to_key, sessions, events, kafka_offsets, committed_at) FROM STDIN
