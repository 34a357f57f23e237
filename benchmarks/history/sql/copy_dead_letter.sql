COPY outbox.dead_letter (topic_id, topic, partition, first_offset, last_offset, closing_offset, reason, generation, batch_id, session_key, detail,
    event_count, event_offsets, event_times_ms, event_values, state, resolved_batch, state_changed_at, created_at) FROM STDIN
