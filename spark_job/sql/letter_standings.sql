-- What decides whether a letter may be retried now. By a range's newer reading its older verdict is out of date.
SELECT d.dead_letter_id, d.state, d.resolved_batch,
    (
        SELECT max(n.dead_letter_id) FROM outbox.dead_letter n
        WHERE n.session_key = d.session_key AND n.topic_id = d.topic_id AND n.partition = d.partition AND n.state = 'open'
            AND n.reason <> 'malformed' AND n.first_offset <= d.first_offset AND n.last_offset >= d.last_offset
            AND (n.revision, n.dead_letter_id) > (d.revision, d.dead_letter_id)
    ) AS newer_letter,
    (
        SELECT max(o.batch_id)
        FROM outbox.session_output o,
            unnest(o.session_topic_ids, o.session_partitions, o.session_starts, o.session_ends) AS s (topic_id, partition, first_offset, end_offset)
        WHERE o.batch_id > d.batch_id AND o.session_key = d.session_key AND o.revision >= d.revision AND s.topic_id = d.topic_id AND s.partition = d.partition
            AND s.first_offset <= d.first_offset AND s.end_offset >= d.last_offset
    ) AS covering_batch
FROM outbox.dead_letter d
WHERE d.dead_letter_id = ANY (%(ids)s::bigint[])
