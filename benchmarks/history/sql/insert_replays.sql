INSERT INTO outbox.replay (state, from_batch, to_batch, topics, requested, target_cluster_id, target_servers, rows_total, events_total, seq, cursor_batch,
    rows_sent, events_sent, created_at, state_changed_at)
SELECT r.state, b.batch_id, b.batch_id + 9, r.topics, '{}', 'synthetic', 'localhost:9092', s.rows, s.rows * r.events, s.rows / 1000, b.batch_id + 9,
       s.rows, s.rows * r.events, b.created_at + interval '1 hour', b.created_at + interval '2 hours'
FROM (VALUES ('done', 0.2, NULL::text[], 20), ('done', 0.5, ARRAY['shop.clicks'], 12), ('cancelled', 0.7, ARRAY['shop.funnel'], 6))
    AS r (state, share, topics, events)
CROSS JOIN LATERAL (SELECT * FROM outbox.batch WHERE batch_id = (SELECT (max(batch_id) * r.share)::bigint FROM outbox.batch)) b
CROSS JOIN LATERAL (SELECT sum(sessions) AS rows FROM outbox.batch WHERE batch_id BETWEEN b.batch_id AND b.batch_id + 9) s
