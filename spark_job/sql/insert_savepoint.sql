INSERT INTO outbox.savepoint (name, generation, batch_id, end_offsets, open_state, lineage, assembly, topics, revision)
VALUES (%(name)s, %(generation)s, %(batch_id)s, %(end_offsets)s, %(open_state)s, %(lineage)s, %(assembly)s, %(topics)s, %(revision)s)
ON CONFLICT (name) WHERE deleted_at IS NULL DO NOTHING
