COPY outbox.batch (batch_id, kind, generation, spark_batch, commit_id, run_id, start_offsets, end_offsets, done_offsets, safe_offsets, input_events,
    sessions, output_events, output_bytes, dead_letters, skipped_sessions, content_hash, transform_fingerprint, created_at) FROM STDIN
