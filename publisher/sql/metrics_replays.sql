-- A 0 for each state that is not the end, so that the first replay is an increase.
SELECT s.state, count(r.replay_id), coalesce(sum(r.events_total - r.events_sent), 0)::bigint
FROM unnest(ARRAY['running', 'paused']) AS s (state)
LEFT JOIN outbox.replay r ON r.state = s.state
GROUP BY s.state
