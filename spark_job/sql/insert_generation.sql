INSERT INTO outbox.generation (generation, start_offsets, open_state, lineage, topics, reason, policy, revision, assembly, from_generation,
    from_batch, savepoint, explanation, cut_offsets, accepted_deliveries, run_id)
VALUES (%(generation)s, %(start_offsets)s, %(open_state)s, %(lineage)s, %(topics)s, %(reason)s, %(policy)s, %(revision)s, %(assembly)s,
    %(from_generation)s, %(from_batch)s, %(savepoint)s, %(explanation)s, %(cut_offsets)s, %(accepted_deliveries)s, %(run_id)s)
