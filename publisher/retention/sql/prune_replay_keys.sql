DELETE FROM outbox.replay_key d
WHERE (d.replay_id, d.session_key) IN (
    SELECT k.replay_id, k.session_key
    FROM outbox.replay r
    JOIN outbox.replay_key k USING (replay_id)
    WHERE r.state IN ('done', 'cancelled') AND r.state_changed_at < now() - make_interval(secs => %(keep_s)s)
    LIMIT %(rows)s)
