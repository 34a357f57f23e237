CREATE OR REPLACE FUNCTION outbox.rows_of_key(session_key text, from_batch bigint, to_batch bigint) RETURNS TABLE(batch_id bigint, sessions integer, topics text[], keys bytea[], partitions integer[], is_delivered boolean, replays bigint[])
    LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    -- EXECUTE plans it with the bounds as constants, so that only the partitions of these batches are locked.
    RETURN QUERY EXECUTE $query$
        SELECT o.batch_id, cardinality(o.session_ends), o.topics, o.keys, o.partitions,
               -- The lane is past the whole batch, so that no cursor of a lane names the row. A resume that did not end may have set it back.
               coalesce((SELECT p.through_batch >= o.batch_id AND p.stopped_why IS DISTINCT FROM 'resuming'
                         FROM outbox.lane_position p
                         WHERE p.lane = o.lane AND p.epoch = (SELECT max(e.epoch) FROM outbox.lane_epoch e WHERE e.from_batch <= o.batch_id)), false),
               -- A process that works on a replay may hold the row; one that stands at it continues after it.
               ARRAY(SELECT r.replay_id
                     FROM outbox.replay r
                     WHERE r.from_batch <= o.batch_id AND r.to_batch >= o.batch_id
                       AND (NOT r.only_keys OR EXISTS (SELECT FROM outbox.replay_key k WHERE k.replay_id = r.replay_id AND k.session_key = $1))
                       AND CASE WHEN r.cursor_batch = o.batch_id AND r.cursor_key = $1 THEN r.state IN ('running', 'paused')
                                ELSE (r.cursor_batch < o.batch_id OR (r.cursor_batch = o.batch_id AND r.cursor_key < $1))
                                     AND r.lease_until >= now() END
                     ORDER BY r.replay_id)
        FROM outbox.session_output o
        WHERE o.session_key = $1 AND o.batch_id >= $2 AND o.batch_id <= $3
        ORDER BY o.batch_id
    $query$ USING session_key, from_batch, to_batch;
END $$;
CREATE OR REPLACE FUNCTION outbox.prune_erased(keep_s double precision, max_rows integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    pruned bigint;
BEGIN
    PERFORM outbox.require_read_committed();
    DELETE FROM outbox.erased d
    WHERE d.erased_id IN (
        SELECT x.erased_id
        FROM outbox.erased x
        WHERE x.batch_id < outbox.retention_floor() AND x.erased_at < now() - make_interval(secs => keep_s)
          -- No reissue can come across its events again: no savepoint is older, and the current position is past them.
          AND NOT EXISTS (SELECT FROM outbox.savepoint s WHERE s.deleted_at IS NULL AND s.created_at < x.erased_at)
          AND NOT EXISTS (
              SELECT FROM unnest(x.topic_ids, x.partitions, x.ends) AS e (topic_id, partition, end_offset)
              WHERE e.end_offset >= (
                  SELECT (coalesce(b.end_offsets, g.start_offsets) #>> ARRAY[e.topic_id, e.partition::text])::bigint
                  FROM (SELECT n.generation, n.start_offsets FROM outbox.generation n ORDER BY n.generation DESC LIMIT 1) g
                  LEFT JOIN LATERAL (
                      SELECT n.end_offsets FROM outbox.batch n
                      WHERE n.generation = g.generation AND n.kind = 'stream' ORDER BY n.batch_id DESC LIMIT 1) b ON true))
        ORDER BY x.erased_id
        LIMIT max_rows);
    GET DIAGNOSTICS pruned = ROW_COUNT;
    RETURN pruned;
END $$;
DROP FUNCTION outbox.begin_erasure(text[]);
DROP TRIGGER erased_remember ON outbox.erased;
DROP FUNCTION outbox.remember_erased();
DROP FUNCTION outbox.record_hash(text, integer, bigint);
DROP FUNCTION outbox.read_ends();
DROP VIEW outbox.erased_offset;
DROP TABLE outbox.erased_key;
CREATE OR REPLACE FUNCTION outbox.drop_archived(partition_name text, archive_id uuid, manifest_sha256 bytea, row_count bigint, sessions bigint, outputs bigint, output_bytes bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    IF NOT EXISTS (
        SELECT FROM pg_locks l
        WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.mode = 'ShareLock' AND l.granted
          AND l.relation = to_regclass(format('outbox.%I', partition_name))
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    ) THEN
        RAISE EXCEPTION 'outbox.% was not held while it was archived', partition_name USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    INSERT INTO outbox.archived (partition_name, from_batch, to_batch, archive_id, manifest_sha256, row_count, sessions, outputs, output_bytes)
    SELECT drop_archived.partition_name, p.from_batch, p.to_batch, drop_archived.archive_id, drop_archived.manifest_sha256,
           drop_archived.row_count, drop_archived.sessions, drop_archived.outputs, drop_archived.output_bytes
    FROM outbox.output_partition p
    WHERE p.name = drop_archived.partition_name;
    PERFORM outbox.drop_partition(drop_archived.partition_name);
END $$;
ALTER TABLE outbox.delivery ALTER COLUMN committed_at SET DEFAULT now();
GRANT INSERT ON outbox.batch TO outbox_writer;
REVOKE INSERT (batch_id, kind, generation, spark_batch, part, commit_id, run_id, start_offsets, end_offsets, open_state, input_events, sessions,
    output_events, output_bytes, dead_letters, duplicate_events, transform_fingerprint) ON outbox.batch FROM outbox_writer;
DROP TRIGGER replay_date_state ON outbox.replay;
DROP TRIGGER dead_letter_date_state ON outbox.dead_letter;
DROP FUNCTION outbox.date_state();
