COPY outbox.session_output (
    session_key, batch_id, lane, revision,
    session_topic_ids, session_partitions, session_starts, session_ends, session_started_ms, session_ended_ms, session_events, session_outputs,
    topics, "values", keys, headers, partitions, timestamps_ms
) FROM STDIN (FORMAT BINARY)
