GRANT INSERT ON outbox.lane_epoch TO outbox_writer;
DROP FUNCTION outbox.first_lane_epoch(integer);
