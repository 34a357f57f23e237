REVOKE INSERT ON outbox.delivery, outbox.parked FROM outbox_publisher;
GRANT INSERT, DELETE ON outbox.delivery TO outbox_publisher;
GRANT INSERT, UPDATE (state, state_changed_at) ON outbox.parked TO outbox_publisher;
GRANT UPDATE (pruned_seq) ON outbox.lane TO outbox_publisher;
REVOKE EXECUTE ON FUNCTION outbox.server_identity(), outbox.ensure_partitions(bigint, bigint) FROM outbox_retention;
REVOKE SELECT ON outbox.alembic_version, outbox.retention, outbox.lane_position, outbox.output_partition FROM outbox_retention;
REVOKE SELECT (batch_id, created_at) ON outbox.batch FROM outbox_retention;
REVOKE SELECT (batch_id, state) ON outbox.parked FROM outbox_retention;
REVOKE SELECT (replay_id, state, from_batch, to_batch, cursor_batch) ON outbox.replay FROM outbox_retention;
REVOKE SELECT (epoch, lane) ON outbox.lane FROM outbox_retention;
REVOKE USAGE ON SCHEMA outbox FROM outbox_retention;
GRANT EXECUTE ON FUNCTION
    outbox.check_stray_rows(bigint, bigint), outbox.check_delivery_counts(bigint, bigint), outbox.check_parked_rows(bigint, bigint) TO PUBLIC;
DROP FUNCTION
    outbox.retention_floor(), outbox.open_at_upgrade(bigint, bigint), outbox.drop_partition(text),
    outbox.prune_batches(double precision, bigint, integer), outbox.prune_resumes(), outbox.prune_parked(double precision, integer),
    outbox.prune_epochs(double precision), outbox.prune_processes(double precision, integer),
    outbox.prune_replay_keys(double precision, integer), outbox.prune_replays(double precision, integer),
    outbox.prune_operations(double precision, integer), outbox.prune_deliveries(integer, integer, double precision, integer),
    outbox.remove_letters(boolean, double precision, bigint, bigint, integer),
    outbox.remove_closed_letters(double precision, bigint, bigint, integer),
    outbox.remove_open_letters(double precision, bigint, bigint, integer), outbox.letters_kept(double precision),
    outbox.end_retention(text), outbox.discard_parked(bigint, text[], bigint[], text[]);
DROP VIEW outbox.audit_operation;
DROP TABLE outbox.operation;

-- It stays where another database of this server still uses it, or where somebody else made it.
DO $$
BEGIN
    DROP ROLE outbox_retention;
EXCEPTION WHEN dependent_objects_still_exist OR insufficient_privilege OR object_in_use THEN
    RAISE NOTICE 'role outbox_retention stays: %', SQLERRM;
END $$;
