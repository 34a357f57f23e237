-- Generations: from where on, and by which rules, the job reads.

-- name: newest
-- Only generations before `before`, unless that is NULL.
SELECT generation, start_offsets, open_state, lineage, topics, reason, policy, revision, assembly, from_generation, from_batch,
    savepoint, explanation, cut_offsets
FROM outbox.generation
WHERE %(before)s::integer IS NULL OR generation < %(before)s::integer
ORDER BY generation DESC
LIMIT 1

-- name: assembly
SELECT assembly FROM outbox.generation WHERE generation = %(generation)s

-- name: greatest_revision
SELECT coalesce(max(revision), 0) FROM outbox.generation

-- name: insert
INSERT INTO outbox.generation (generation, start_offsets, open_state, lineage, topics, reason, policy, revision, assembly, from_generation,
    from_batch, savepoint, explanation, cut_offsets, accepted_deliveries, run_id)
VALUES (%(generation)s, %(start_offsets)s, %(open_state)s, %(lineage)s, %(topics)s, %(reason)s, %(policy)s, %(revision)s, %(assembly)s,
    %(from_generation)s, %(from_batch)s, %(savepoint)s, %(explanation)s, %(cut_offsets)s, %(accepted_deliveries)s, %(run_id)s)

-- name: positions
-- Each generation's start, and the position of its newest stream row.
SELECT g.generation, g.start_offsets, g.open_state AS start_open, coalesce(g.cut_offsets, '{}') AS cut_offsets, g.lineage, g.assembly, g.topics,
    coalesce(b.end_offsets, '{}') AS end_offsets, coalesce(b.open_state, '{}') AS end_open
FROM outbox.generation g
LEFT JOIN LATERAL (
    SELECT n.end_offsets, n.open_state
    FROM outbox.batch n
    WHERE n.generation = g.generation AND n.kind = 'stream'
    ORDER BY n.batch_id DESC
    LIMIT 1) b ON true
ORDER BY g.generation
