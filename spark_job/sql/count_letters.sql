SELECT reason, state, count(*) AS letters, sum(event_count)::bigint AS events
FROM outbox.dead_letter
WHERE (%(ids)s::bigint[] IS NULL OR dead_letter_id = ANY (%(ids)s::bigint[]))
    AND (%(reasons)s::text[] IS NULL OR reason = ANY (%(reasons)s::text[]))
    AND (%(state)s::text IS NULL OR state = %(state)s::text)
    AND (%(key)s::text IS NULL OR session_key = %(key)s::text)
    AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
GROUP BY reason, state
ORDER BY reason, state
