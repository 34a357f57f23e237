SELECT generation, cut_offsets FROM outbox.generation WHERE cut_offsets IS NOT NULL ORDER BY generation
