-- Pauses or cancels; whoever works on it sees that after its transaction.
UPDATE outbox.replay
SET state = %(state)s, state_changed_at = now()
WHERE replay_id = %(replay_id)s AND state IN ('running', 'paused') AND state <> %(state)s
