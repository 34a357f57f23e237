COPY outbox.batch (batch_id, kind, generation, spark_batch, commit_id, run_id, start_offsets, end_offsets, open_state, input_events,
    sessions, output_events, output_bytes, dead_letters, transform_fingerprint, created_at) FROM STDIN
