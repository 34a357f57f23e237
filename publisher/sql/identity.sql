SELECT i.outbox_uuid, i.cluster_id, i.transactional_id_prefix, i.output_topic_ids, i.system_identifier, i.timeline,
       s.system_identifier, s.timeline
FROM outbox.identity i
CROSS JOIN outbox.server_identity() s
