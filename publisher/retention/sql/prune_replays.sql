DELETE FROM outbox.replay d
WHERE d.replay_id IN (
    SELECT r.replay_id FROM outbox.replay r
    WHERE r.state IN ('done', 'cancelled') AND r.state_changed_at < now() - make_interval(secs => %(keep_s)s)
      AND NOT EXISTS (SELECT FROM outbox.replay_key k WHERE k.replay_id = r.replay_id)
    LIMIT %(rows)s)
