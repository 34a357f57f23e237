INSERT INTO outbox.generation (generation, directory_token, start_offsets, high_water, topics, reason, policy, assembly, assembly_fingerprint,
    run_id, from_generation, from_batch, savepoint, created_at)
VALUES (%(generation)s, %(generation)s::text, %(start)s, %(high_water)s, %(topics)s, %(reason)s, 'skip', '{}', 'history',
    %(run_id)s, %(from_generation)s, %(from_batch)s, CASE WHEN %(reason)s = 'savepoint' THEN 'before-deploy' END, %(started_at)s)
