COPY outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail, state, requeued_batch, state_changed_at, created_at) FROM STDIN
