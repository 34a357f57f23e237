-- Under the writer lock: whose the outbox is, where its newest generation is, and what comes next.
SELECT w.run_id, g.generation,
    (SELECT b.batch_id FROM outbox.batch b WHERE b.generation = g.generation AND b.kind = 'stream' ORDER BY b.batch_id DESC LIMIT 1) AS newest_stream,
    coalesce((SELECT max(batch_id) FROM outbox.batch), 0) + 1 AS next_batch,
    (SELECT lanes FROM outbox.lane_epoch ORDER BY epoch DESC LIMIT 1) AS lanes
FROM outbox.writer w
LEFT JOIN LATERAL (SELECT max(generation) AS generation FROM outbox.generation) g ON true
