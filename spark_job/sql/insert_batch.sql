INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, part, run_id, start_offsets, end_offsets, done_offsets, safe_offsets,
    input_events, sessions, output_events, output_bytes, dead_letters, duplicate_events, skipped_sessions, content_hash, transform_fingerprint)
VALUES (%(batch_id)s, %(kind)s, %(generation)s, %(spark_batch)s, %(part)s, %(run_id)s, %(start_offsets)s, %(end_offsets)s, %(done_offsets)s,
    %(safe_offsets)s, %(input_events)s, %(sessions)s, %(output_events)s, %(output_bytes)s,
    %(dead_letters)s, %(duplicate_events)s, %(skipped_sessions)s, %(content_hash)s, %(transform_fingerprint)s)
