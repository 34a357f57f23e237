SELECT generation, directory_token, start_offsets, high_water, topics, reason, policy, revision, assembly, assembly_fingerprint
FROM outbox.generation
ORDER BY generation DESC
LIMIT 1
