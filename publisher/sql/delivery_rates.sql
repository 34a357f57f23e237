-- What was delivered within the last minute and the last five, by the index on committed_at.
SELECT w.seconds, count(d.seq) AS transactions, coalesce(sum(d.sessions), 0)::bigint AS sessions, coalesce(sum(d.events), 0)::bigint AS events
FROM unnest(ARRAY[60, 300]) AS w (seconds)
LEFT JOIN outbox.delivery d ON d.kind = 'delivery' AND d.committed_at > now() - make_interval(secs => w.seconds)
GROUP BY w.seconds
ORDER BY w.seconds
