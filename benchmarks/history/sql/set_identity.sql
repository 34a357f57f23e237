UPDATE outbox.identity
SET cluster_id = 'synthetic', transactional_id_prefix = 'outbox',
    output_topic_ids = (SELECT jsonb_object_agg(topic, left(md5(topic), 22)) FROM unnest(%(topics)s::text[]) topic)
