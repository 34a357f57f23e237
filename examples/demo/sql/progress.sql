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
