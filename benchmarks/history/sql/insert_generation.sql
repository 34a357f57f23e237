INSERT INTO outbox.generation (generation, start_offsets, open_state, topics, reason, policy, assembly, run_id,
    from_generation, from_batch, savepoint, created_at)
VALUES (%(generation)s, %(start)s, %(open_state)s, %(topics)s, %(reason)s, 'skip', '{}', %(run_id)s, %(from_generation)s,
    %(from_batch)s, CASE WHEN %(reason)s = 'savepoint' THEN 'before-deploy' END, %(started_at)s)
