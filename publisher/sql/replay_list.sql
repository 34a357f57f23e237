SELECT r.replay_id, r.replay_uuid, r.state, r.reason, r.from_batch, r.to_batch, r.topics, r.only_keys, r.requested, r.target_topic,
       r.target_cluster_id, r.target_servers, r.events_per_second, r.rows_total, r.events_total, r.lease_holder,
       coalesce(r.lease_until >= now() AND EXISTS (
           SELECT FROM pg_stat_activity a
           WHERE a.pid = r.lease_backend_pid AND (a.backend_start = r.lease_backend_start) IS NOT FALSE), false) AS held,
       r.seq, r.cursor_batch, r.cursor_key, r.rows_sent, r.events_sent, r.rows_skipped, r.measured_rate, r.created_at, r.state_changed_at
FROM outbox.replay r
WHERE (%(replay_id)s::bigint IS NULL OR r.replay_id = %(replay_id)s)
  AND (%(all_states)s OR r.state IN ('running', 'paused'))
ORDER BY r.replay_id
