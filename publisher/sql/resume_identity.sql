UPDATE outbox.identity
SET cluster_id = %(cluster_id)s,
    transactional_id_prefix = coalesce(transactional_id_prefix, %(transactional_id_prefix)s),
    output_topic_ids = %(output_topic_ids)s,
    system_identifier = %(system_identifier)s,
    timeline = %(timeline)s
