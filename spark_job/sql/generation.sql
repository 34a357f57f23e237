SELECT generation, directory_token, start_offsets, high_water, topics, reason, policy, revision, assembly, assembly_fingerprint,
    from_generation, from_batch, savepoint, read_again, explanation, cut_offsets
FROM outbox.generation
WHERE generation = coalesce(%(generation)s, (SELECT max(generation) FROM outbox.generation))
