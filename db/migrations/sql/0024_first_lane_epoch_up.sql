-- A login that inserts lane epochs could begin one behind the lanes' cursors, or end every epoch: deliveries would halt with no lane stopped.
CREATE FUNCTION outbox.first_lane_epoch(lanes integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    INSERT INTO outbox.lane_epoch (epoch, from_batch, lanes)
    SELECT 1, 1, first_lane_epoch.lanes
    WHERE NOT EXISTS (SELECT FROM outbox.lane_epoch);
END $$;
COMMENT ON FUNCTION outbox.first_lane_epoch(integer) IS 'Sets the lane count of an outbox that has none yet. outbox.change_lanes() makes all later epochs.';
REVOKE ALL ON FUNCTION outbox.first_lane_epoch(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.first_lane_epoch(integer) TO outbox_writer;
REVOKE INSERT ON outbox.lane_epoch FROM outbox_writer;
