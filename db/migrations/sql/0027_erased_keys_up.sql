-- Retention goes by these times, so no login writes them: a closed letter or a replay that ended long ago would go at once, and the outputs of a
-- partition whose last batches are old. The rights to the columns state_changed_at stay, for the code before this migration; they change nothing.
CREATE FUNCTION outbox.date_state() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    new.state_changed_at := CASE WHEN new.state = old.state THEN old.state_changed_at ELSE clock_timestamp() END;
    RETURN new;
END $$;
COMMENT ON FUNCTION outbox.date_state() IS 'Postgres alone says when a state changed: retention goes by it.';
REVOKE ALL ON FUNCTION outbox.date_state() FROM PUBLIC;
CREATE TRIGGER dead_letter_date_state BEFORE UPDATE OF state, state_changed_at ON outbox.dead_letter
    FOR EACH ROW EXECUTE FUNCTION outbox.date_state();
CREATE TRIGGER replay_date_state BEFORE UPDATE OF state, state_changed_at ON outbox.replay
    FOR EACH ROW EXECUTE FUNCTION outbox.date_state();
REVOKE INSERT ON outbox.batch FROM outbox_writer;
GRANT INSERT (batch_id, kind, generation, spark_batch, part, commit_id, run_id, start_offsets, end_offsets, open_state, input_events, sessions,
    output_events, output_bytes, dead_letters, duplicate_events, transform_fingerprint) ON outbox.batch TO outbox_writer;
