-- The digests are nowhere else: without them nothing that was archived can be proven, sent again or erased, even after another upgrade.
DO $$
BEGIN
    IF EXISTS (SELECT FROM outbox.archived) THEN
        RAISE EXCEPTION 'partitions were archived, and the former revision has their digests nowhere else. %',
            'Stay at this revision, or keep a copy of outbox.archived and delete its rows' USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION outbox.retention_floor() RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
SELECT least(
    (SELECT min(p.from_batch) FROM outbox.output_partition p),
    (SELECT min(CASE WHEN p.stopped_why = 'resuming' THEN p.from_batch - 1 ELSE p.through_batch END)
     FROM outbox.lane_position p
     WHERE p.stopped_why = 'resuming' OR NOT p.ended),
    (SELECT min(greatest(r.from_batch, r.cursor_batch)) FROM outbox.replay r WHERE r.state IN ('running', 'paused')),
    (SELECT min(p.batch_id) FROM outbox.parked p WHERE p.state = 'parked'),
    (SELECT max(b.batch_id) FROM outbox.batch b))
$$;
REVOKE SELECT (outbox_uuid, system_identifier) ON outbox.identity FROM outbox_retention;
REVOKE SELECT (lanes) ON outbox.lane_epoch FROM outbox_retention;
DROP FUNCTION outbox.rewrite_archived(text, bytea, bytea, jsonb);
DROP FUNCTION outbox.drop_archived(text, uuid, bytea, bigint, bigint, bigint, bigint);
DROP FUNCTION outbox.hold_partition(text);
-- Without the column it would be taken for a replay of rows that are there.
UPDATE outbox.replay SET state = 'cancelled' WHERE from_archive AND state IN ('running', 'paused');
ALTER TABLE outbox.replay DROP COLUMN from_archive;
DROP TABLE outbox.archived;
