-- What was committed within the last minute and the last five, by the index on created_at.
SELECT w.seconds, count(DISTINCT (b.run_id, b.spark_batch)) FILTER (WHERE b.kind = 'stream') AS batches,
    coalesce(sum(b.input_events), 0)::bigint AS input_events, coalesce(sum(b.sessions), 0)::bigint AS sessions,
    coalesce(sum(b.output_events), 0)::bigint AS output_events, coalesce(sum(b.dead_letters), 0)::bigint AS dead_letters,
    coalesce(sum(b.duplicate_events), 0)::bigint AS duplicate_events
FROM unnest(ARRAY[60, 300]) AS w (seconds)
LEFT JOIN outbox.batch b ON b.kind <> 'requeue' AND b.created_at > now() - make_interval(secs => w.seconds)
GROUP BY w.seconds
ORDER BY w.seconds
