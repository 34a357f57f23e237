GRANT INSERT ON outbox.batch TO outbox_writer;
REVOKE INSERT (batch_id, kind, generation, spark_batch, part, commit_id, run_id, start_offsets, end_offsets, open_state, input_events, sessions,
    output_events, output_bytes, dead_letters, duplicate_events, transform_fingerprint) ON outbox.batch FROM outbox_writer;
DROP TRIGGER replay_date_state ON outbox.replay;
DROP TRIGGER dead_letter_date_state ON outbox.dead_letter;
DROP FUNCTION outbox.date_state();
