INSERT INTO outbox.replay (from_batch, to_batch, topics, only_keys, requested, target_topic, target_cluster_id, target_servers,
    events_per_second, rows_total, events_total)
VALUES (%(from_batch)s, %(to_batch)s, %(topics)s, %(only_keys)s, %(requested)s, %(target_topic)s, %(target_cluster_id)s, %(target_servers)s,
    %(events_per_second)s, %(rows_total)s, %(events_total)s)
RETURNING replay_id
