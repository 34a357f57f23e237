INSERT INTO outbox.generation (generation, directory_token, start_offsets, high_water, topics, reason, policy, revision,
    assembly, assembly_fingerprint, from_generation, from_batch, savepoint, read_again, explanation, cut_offsets, run_id)
VALUES (%(generation)s, %(directory_token)s, %(start_offsets)s, %(high_water)s, %(topics)s, %(reason)s, %(policy)s, %(revision)s,
    %(assembly)s, %(assembly_fingerprint)s, %(from_generation)s, %(from_batch)s, %(savepoint)s, %(read_again)s, %(explanation)s, %(cut_offsets)s, %(run_id)s)
