SELECT generation, start_offsets, open_state, lineage, topics, reason, policy, revision, assembly, from_generation, from_batch,
    savepoint, explanation, cut_offsets
FROM outbox.generation
ORDER BY generation DESC
LIMIT 1
