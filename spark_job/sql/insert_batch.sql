INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, part, run_id, start_offsets, end_offsets, open_state, input_events, sessions,
    output_events, output_bytes, dead_letters, duplicate_events, transform_fingerprint)
VALUES (%(batch_id)s, %(kind)s, %(generation)s, %(spark_batch)s, %(part)s, %(run_id)s, %(start_offsets)s, %(end_offsets)s, %(open_state)s,
    %(input_events)s, %(sessions)s, %(output_events)s, %(output_bytes)s, %(dead_letters)s, %(duplicate_events)s, %(transform_fingerprint)s)
