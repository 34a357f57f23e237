-- What the demo asks of the outbox.

-- name: generations
SELECT count(*) FROM outbox.generation

-- name: progress
SELECT
    b.batches,
    b.input_events,
    b.sessions,
    b.output_events,
    coalesce((SELECT sum(l.events) FROM outbox.lane l), 0)::bigint AS delivered,
    (SELECT count(*) FROM outbox.dead_letter) AS dead_letters,
    coalesce((SELECT sum((p.value ->> 'sessions')::bigint)
              FROM (SELECT * FROM outbox.batch WHERE kind = 'stream' ORDER BY batch_id DESC LIMIT 1) n
              CROSS JOIN LATERAL jsonb_each(n.open_state) AS t
              CROSS JOIN LATERAL jsonb_each(t.value) AS p), 0)::bigint AS open_sessions
FROM (
    SELECT
        count(*) AS batches,
        coalesce(sum(input_events), 0)::bigint AS input_events,
        coalesce(sum(sessions), 0)::bigint AS sessions,
        coalesce(sum(output_events), 0)::bigint AS output_events
    FROM outbox.batch
) b

-- name: pending
-- Output events that are in the outbox and that no lane has recorded as sent.
SELECT coalesce(sum(cardinality(o.topics)), 0)::bigint
FROM outbox.session_output o
CROSS JOIN LATERAL (SELECT epoch FROM outbox.lane_epoch WHERE from_batch <= o.batch_id ORDER BY from_batch DESC LIMIT 1) e
LEFT JOIN outbox.lane l ON l.epoch = e.epoch AND l.lane = o.lane
WHERE l.lane IS NULL
   OR l.cursor_batch < o.batch_id
   OR (l.cursor_batch = o.batch_id AND l.cursor_key < o.session_key)

-- name: done
-- How far the newest stream row says the input was read: one row a partition.
SELECT g.topics ->> t.topic_id AS topic, p.key::integer AS partition, p.value::bigint AS done
FROM (SELECT * FROM outbox.batch WHERE kind = 'stream' ORDER BY batch_id DESC LIMIT 1) b
JOIN outbox.generation g USING (generation)
CROSS JOIN LATERAL jsonb_each(b.end_offsets) AS t (topic_id, partitions)
CROSS JOIN LATERAL jsonb_each_text(t.partitions) AS p (key, value)

-- name: letters
SELECT reason, topic, partition, first_offset FROM outbox.dead_letter

-- name: letter_table
SELECT reason, count(*) AS letters, sum(event_count) AS events, min(detail) AS for_example
FROM outbox.dead_letter
GROUP BY reason
ORDER BY reason
