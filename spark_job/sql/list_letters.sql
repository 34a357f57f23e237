SELECT dead_letter_id, reason, state, session_key, topic, partition, first_offset, last_offset, closing_offset, revision, generation, batch_id,
    event_count, cardinality(event_offsets) AS kept, resolved_batch, created_at, detail
FROM outbox.dead_letter
WHERE (%(ids)s::bigint[] IS NULL OR dead_letter_id = ANY (%(ids)s::bigint[]))
    AND (%(reasons)s::text[] IS NULL OR reason = ANY (%(reasons)s::text[]))
    AND (%(state)s::text IS NULL OR state = %(state)s::text)
    AND (%(key)s::text IS NULL OR session_key = %(key)s::text)
    AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
ORDER BY dead_letter_id
LIMIT %(rows)s
