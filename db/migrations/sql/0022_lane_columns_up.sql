-- A lane's cursor names a session key, which retention does not need.
REVOKE SELECT ON outbox.lane_position FROM outbox_retention;
GRANT SELECT (epoch, lane, from_batch, to_batch, through_batch, lease_holder, stopped_reason, stopped_why) ON outbox.lane_position TO outbox_retention;
