-- What decides whether a letter may be retried now. By a range's newer reading its older verdict is out of date.
SELECT d.dead_letter_id, d.state, d.resolved_batch,
    (
        SELECT max(n.dead_letter_id) FROM outbox.dead_letter n
        WHERE n.session_key = d.session_key AND n.topic_id = d.topic_id AND n.partition = d.partition AND n.state = 'open'
            AND n.reason <> 'malformed' AND n.first_offset <= d.first_offset AND n.last_offset >= d.last_offset
            AND (n.revision, n.dead_letter_id) > (d.revision, d.dead_letter_id)
    ) AS newer_letter
FROM outbox.dead_letter d
WHERE d.dead_letter_id = ANY (%(ids)s::bigint[])
