SELECT dead_letter_id, topic_id, topic, partition, first_offset, last_offset, closing_offset, reason, revision, generation, batch_id,
    session_key, detail, event_count, event_offsets, event_times_ms, event_values, event_types, state, resolved_batch, state_changed_at, created_at
FROM outbox.dead_letter
WHERE dead_letter_id = ANY (%(ids)s::bigint[])
ORDER BY array_position(%(ids)s::bigint[], dead_letter_id)
