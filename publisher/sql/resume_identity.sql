-- Compare and set, so that nothing that was recorded since the look is lost: topics that a publisher has bound since stay.
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
