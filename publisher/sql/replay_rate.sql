UPDATE outbox.replay SET events_per_second = %(events_per_second)s WHERE replay_id = %(replay_id)s
