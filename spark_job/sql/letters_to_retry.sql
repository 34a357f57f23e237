-- In the order in which their outputs go out; a batch holds one revision.
SELECT dead_letter_id, revision, pg_column_size(event_values) AS stored_bytes
FROM outbox.dead_letter
WHERE (%(ids)s::bigint[] IS NULL OR dead_letter_id = ANY (%(ids)s::bigint[]))
    AND (%(reasons)s::text[] IS NULL OR reason = ANY (%(reasons)s::text[]))
    AND (%(state)s::text IS NULL OR state = %(state)s::text)
    AND (%(key)s::text IS NULL OR session_key = %(key)s::text)
    AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
ORDER BY revision, topic_id, partition, closing_offset, dead_letter_id
