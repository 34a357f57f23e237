UPDATE outbox.dead_letter
SET state = 'discarded', state_changed_at = clock_timestamp()
WHERE state = 'open'
    AND (%(ids)s::bigint[] IS NULL OR dead_letter_id = ANY (%(ids)s::bigint[]))
    AND (%(reasons)s::text[] IS NULL OR reason = ANY (%(reasons)s::text[]))
    AND (%(key)s::text IS NULL OR session_key = %(key)s::text)
    AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
RETURNING dead_letter_id
