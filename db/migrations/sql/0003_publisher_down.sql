-- Takes back what 0003_publisher_up.sql added.

DROP FUNCTION outbox.requeue(text[], bigint[], integer[], integer, uuid);
DROP FUNCTION outbox.change_lanes(integer);
DROP TABLE outbox.replay_key, outbox.replay, outbox.publisher_process;
ALTER TABLE outbox.lane DROP COLUMN stopped_why;
DELETE FROM outbox.delivery WHERE kind = 'resume' AND to_batch = 0;
UPDATE outbox.delivery SET after_batch = NULL, after_key = NULL WHERE kind = 'resume';
ALTER TABLE outbox.delivery DROP COLUMN kind, DROP COLUMN note, DROP CONSTRAINT IF EXISTS delivery_natural, DROP CONSTRAINT IF EXISTS delivery_forward,
    ADD CONSTRAINT delivery_natural CHECK (seq > 0 AND to_batch > 0 AND least(after_batch, sessions, events) >= 0),
    ADD CONSTRAINT delivery_forward CHECK (after_batch <= to_batch);
REVOKE UPDATE (system_identifier, timeline) ON outbox.identity FROM outbox_publisher;
REVOKE UPDATE (state, state_changed_at) ON outbox.parked FROM outbox_publisher;
