-- Which cluster, topics and server this outbox belongs to.

-- name: read
SELECT i.outbox_uuid, i.cluster_id, i.transactional_id_prefix, i.output_topic_ids, i.system_identifier, i.timeline,
       s.system_identifier, s.timeline
FROM outbox.identity i
CROSS JOIN outbox.server_identity() s

-- name: bind
-- Compare and set: the first publisher binds the outbox to a cluster and a prefix; later ones change nothing.
UPDATE outbox.identity
SET cluster_id = coalesce(cluster_id, %(cluster_id)s),
    transactional_id_prefix = coalesce(transactional_id_prefix, %(transactional_id_prefix)s)
WHERE cluster_id IS NULL OR transactional_id_prefix IS NULL

-- name: bind_topics
-- Ids that are already recorded take precedence over the new ones.
UPDATE outbox.identity
SET output_topic_ids = %(topic_ids)s || output_topic_ids
RETURNING output_topic_ids

-- name: rebind
-- Compare and set: nothing that was recorded since the read is lost, and topics that a publisher has bound since then stay.
UPDATE outbox.identity
SET cluster_id = %(cluster_id)s,
    transactional_id_prefix = coalesce(transactional_id_prefix, %(transactional_id_prefix)s),
    output_topic_ids = CASE WHEN cluster_id = %(cluster_id)s THEN output_topic_ids ELSE '{}' END || %(accepted_ids)s,
    system_identifier = %(system_identifier)s,
    timeline = %(timeline)s
WHERE cluster_id IS NOT DISTINCT FROM %(found_cluster_id)s
  AND system_identifier = %(found_system_identifier)s
  AND timeline = %(found_timeline)s
  AND output_topic_ids @> %(replaced_ids)s
