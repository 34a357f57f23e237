SELECT k.session_key FROM outbox.replay_key k WHERE k.replay_id = %(replay_id)s ORDER BY k.session_key
