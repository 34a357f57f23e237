-- Compare and set: the first publisher binds the outbox to a cluster and a prefix, every later one finds them.
UPDATE outbox.identity
SET cluster_id = coalesce(cluster_id, %(cluster_id)s),
    transactional_id_prefix = coalesce(transactional_id_prefix, %(transactional_id_prefix)s)
WHERE cluster_id IS NULL OR transactional_id_prefix IS NULL
