-- Open letters of an earlier revision that these letters of a reissue say again, about the same events or more.
UPDATE outbox.dead_letter d
SET state = 'resolved', resolved_batch = %(batch_id)s, state_changed_at = clock_timestamp()
FROM pg_temp.letter_stage l
WHERE d.session_key IS NOT DISTINCT FROM l.session_key AND d.topic_id = l.topic_id AND d.partition = l.partition
    -- The third follows from the others: without it the index has no end, and each letter visits all later ones of its partition.
    AND d.first_offset >= l.first_offset AND d.last_offset <= l.last_offset AND d.first_offset <= l.last_offset
    AND d.state = 'open' AND d.revision < %(revision)s
