CREATE OR REPLACE FUNCTION outbox.check_batch_counts(from_batch bigint, to_batch bigint)
RETURNS TABLE (batch_id bigint, in_ledger boolean, ledger_sessions bigint, ledger_events bigint, ledger_bytes bigint,
               row_sessions bigint, row_events bigint, row_bytes bigint)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 10
BEGIN ATOMIC
    SELECT coalesce(b.batch_id, r.batch_id), b.batch_id IS NOT NULL, b.sessions::bigint, b.output_events, b.output_bytes,
           coalesce(r.sessions, 0), coalesce(r.events, 0), coalesce(r.bytes, 0)
    FROM (
        SELECT l.batch_id, l.sessions, l.output_events, l.output_bytes
        FROM outbox.batch l
        WHERE l.batch_id >= check_batch_counts.from_batch AND l.batch_id <= check_batch_counts.to_batch
    ) b
    FULL JOIN (
        SELECT n.batch_id, sum(n.sessions) AS sessions, sum(n.events) AS events, sum(n.bytes)::bigint AS bytes
        FROM (
            -- OFFSET 0: each row is made small before it is sorted or grouped, or the values would be sorted with it.
            SELECT o.batch_id, cardinality(o.session_ends) AS sessions, cardinality(o.topics) AS events,
                   (SELECT coalesce(sum(length(v)), 0) FROM unnest(o."values") v) AS bytes
            FROM outbox.batch_rows(check_batch_counts.from_batch, check_batch_counts.to_batch) o
            OFFSET 0
        ) n
        GROUP BY n.batch_id
    ) r ON r.batch_id = b.batch_id
    WHERE CASE WHEN b.batch_id IS NULL THEN true
               WHEN (b.sessions, b.output_events, b.output_bytes)
                    IS DISTINCT FROM (coalesce(r.sessions, 0), coalesce(r.events, 0), coalesce(r.bytes, 0))
                   THEN r.batch_id IS NOT NULL
                        OR (SELECT range_agg(int8range(p.from_batch, p.to_batch, '[]')) FROM outbox.output_partition p WHERE NOT p.detaching)
                           @> b.batch_id
               ELSE false END;
END;

CREATE OR REPLACE FUNCTION outbox.check_emitted_twice(from_batch bigint, to_batch bigint)
RETURNS TABLE (session_key text, revision integer, topic_id text, partition integer, end_offset bigint, times bigint,
               first_batch bigint, last_batch bigint)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 10
BEGIN ATOMIC
    SELECT min(o.session_key), o.revision, s.topic_id, s.partition, s.end_offset, count(*), min(o.batch_id), max(o.batch_id)
    FROM outbox.batch_rows(check_emitted_twice.from_batch, check_emitted_twice.to_batch) o
    CROSS JOIN LATERAL unnest(o.session_topic_ids, o.session_partitions, o.session_ends) AS s (topic_id, partition, end_offset)
    WHERE NOT EXISTS (SELECT FROM outbox.parked p WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id)
    GROUP BY s.topic_id, s.partition, s.end_offset, o.revision
    HAVING count(*) > 1;
END;

CREATE OR REPLACE VIEW outbox.check_delivery_counts AS
SELECT d.epoch, d.lane, d.seq, d.after_batch, d.after_key, d.to_batch, d.to_key, d.sessions, d.events, r.sessions AS row_sessions,
       r.events AS row_events
FROM outbox.delivery d
CROSS JOIN LATERAL (
    SELECT coalesce(sum(cardinality(o.session_ends)), 0) AS sessions, coalesce(sum(cardinality(o.topics)), 0) AS events
    FROM outbox.session_output o
    WHERE o.lane = d.lane
      AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key)
      AND NOT EXISTS (
          SELECT FROM outbox.parked p
          WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id AND p.after_seq < d.seq)
) r
WHERE d.kind = 'delivery' AND d.after_batch IS NOT NULL;

CREATE OR REPLACE FUNCTION outbox.check_delivery_counts(from_batch bigint, to_batch bigint) RETURNS SETOF outbox.check_delivery_counts
    LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    first_batch bigint;
BEGIN
    IF from_batch > to_batch THEN
        RETURN;
    END IF;
    -- A delivery begins after the row that it names, so with that row's batch at the earliest.
    SELECT min(least(d.after_batch, d.to_batch)) INTO first_batch
    FROM outbox.delivery d
    WHERE d.kind = 'delivery' AND d.after_batch IS NOT NULL
      AND d.to_batch >= check_delivery_counts.from_batch AND d.to_batch <= check_delivery_counts.to_batch
      AND int8range(least(d.after_batch, d.to_batch), d.to_batch, '[]')
          && int8range(check_delivery_counts.from_batch, nullif(check_delivery_counts.to_batch, 9223372036854775807), '[]');
    RETURN QUERY EXECUTE $query$
        SELECT d.epoch, d.lane, d.seq, d.after_batch, d.after_key, d.to_batch, d.to_key, d.sessions, d.events, r.sessions AS row_sessions,
               r.events AS row_events
        FROM outbox.delivery d
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(cardinality(o.session_ends)), 0) AS sessions, coalesce(sum(cardinality(o.topics)), 0) AS events
            FROM outbox.session_output o
            WHERE o.lane = d.lane AND o.batch_id >= $3 AND o.batch_id <= $2
              AND outbox.cursor_covers(d.after_batch, d.after_key, d.to_batch, d.to_key, o.batch_id, o.session_key)
              AND NOT EXISTS (
                  SELECT FROM outbox.parked p
                  WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id AND p.after_seq < d.seq)
        ) r
        WHERE d.kind = 'delivery' AND d.after_batch IS NOT NULL AND d.to_batch >= $1 AND d.to_batch <= $2
          AND int8range(least(d.after_batch, d.to_batch), d.to_batch, '[]') && int8range($1, nullif($2, 9223372036854775807), '[]')
    $query$ USING from_batch, to_batch, coalesce(first_batch, from_batch);
END $$;

DROP FUNCTION outbox.prune_erased(double precision, integer), outbox.erase_rows(text, bigint[]), outbox.erase_traces(text), outbox.erase_parked(text, bigint[]), outbox.erase_letters(bigint[]),
    outbox.letters_of_key(text, bigint[]), outbox.rows_of_key(text, bigint, bigint), outbox.hold_for_erasure(), outbox.key_hash(text);
DROP TABLE outbox.erased;
REVOKE ALL ON outbox.alembic_version, outbox.identity, outbox.batch, outbox.generation, outbox.output_partition FROM outbox_eraser;
REVOKE ALL ON outbox.operation FROM outbox_eraser;
REVOKE ALL ON FUNCTION outbox.server_identity() FROM outbox_eraser;
REVOKE ALL ON SCHEMA outbox FROM outbox_eraser;
REVOKE EXECUTE ON FUNCTION outbox.total(integer[]) FROM outbox_publisher, outbox_auditor;

-- The role stays where another database of this server still uses it, or where somebody else made it.
DO $$
BEGIN
    DROP ROLE outbox_eraser;
EXCEPTION WHEN dependent_objects_still_exist OR insufficient_privilege THEN
    RAISE NOTICE 'role outbox_eraser stays: %', SQLERRM;
END $$;
