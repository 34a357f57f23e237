UPDATE outbox.replay SET created_at = created_at + %(by)s, state_changed_at = state_changed_at + %(by)s
