-- The rows that lanes deliver.

-- name: in_index_order
-- The planner does not know how many rows lie ahead, because the ledger's own end bounds them. It assumes few and sorts: each chunk would
-- then read all remaining rows of the lane, including the wide columns. In the index's order a chunk reads only its own rows.
SET LOCAL enable_sort = off

-- name: of_lane
-- The upper bound comes from the ledger and the epochs, so that no other query has to run before this one.
-- The conditions on batch_id are repeated: the row comparison walks the index, the plain ones prune partitions.
-- The size of the rows is limited before any wide column is fetched: together at most `bytes`, or one row alone of at most `whole`.
-- The row that does not fit comes last, without its wide columns.
-- Sizes are guessed without detoasting the wide columns: a compressed column counts `expansion` times its stored size. Values may shrink to
-- a 250th. So the values of a row are read for their true size if they fit by the guess but may alone exceed `bytes`.
SELECT r.batch_id, r.session_key, r.revision, r.session_topic_ids, r.session_partitions, r.session_ends, r.session_outputs,
       r.topics, CASE WHEN r.fits THEN r."values" END AS "values", CASE WHEN r.fits THEN r.keys END AS keys,
       CASE WHEN r.fits THEN r.headers END AS headers, r.partitions, r.timestamps_ms, r.session_ended_ms, r.size, r.fits
FROM (
  SELECT q.*, CASE WHEN q.before IS NULL THEN q.size <= %(whole)s ELSE q.before + q.size <= %(bytes)s END AS fits
  FROM (
    SELECT e.*, sum(e.size) OVER (ORDER BY e.batch_id, e.session_key ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM (
      SELECT g.*,
             -- Never less than the guess, so that the sum of the sizes shows that the guess was a bound.
             CASE WHEN g.is_compressed AND g.guess <= %(whole)s AND pg_column_size(g."values")::bigint * 250 > %(bytes)s
                  THEN greatest(g.guess, least((SELECT sum(octet_length(v)) FROM unnest(g."values") v), 1073741824)::integer)
                  ELSE g.guess END AS size
      FROM (
        SELECT s.*, sum(s.guess) OVER (ORDER BY s.batch_id, s.session_key ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS guessed_before
        FROM (
          SELECT o.*, pg_column_compression(o."values") IS NOT NULL AS is_compressed,
                 least(pg_column_size(o."values")::bigint * CASE WHEN pg_column_compression(o."values") IS NULL THEN 1 ELSE %(expansion)s END
                       + coalesce(pg_column_size(o.keys), 0) + coalesce(pg_column_size(o.headers), 0), 1073741824)::integer AS guess
          FROM outbox.session_output o
          WHERE o.lane = %(lane)s
            AND o.batch_id >= %(from_batch)s
            AND o.batch_id <= %(to_batch)s
            AND o.batch_id <= least((SELECT max(b.batch_id) FROM outbox.batch b),
                                    (SELECT min(e.from_batch) - 1 FROM outbox.lane_epoch e WHERE e.epoch > %(epoch)s))
            AND (o.batch_id, o.session_key) > (%(from_batch)s, %(from_key)s)
          ORDER BY o.batch_id, o.session_key
          LIMIT %(rows)s
        ) s
      ) g
      WHERE coalesce(g.guessed_before, 0) < %(bytes)s
    ) e
  ) q
) r
WHERE coalesce(r.before, 0) < %(bytes)s
ORDER BY r.batch_id, r.session_key

-- name: stray
-- The first row of these batches with a lane that the epoch does not have. If earlier epochs had more lanes, the search goes lane by lane:
-- the index leads with the lane, so rows of those epochs in the same partitions are not read.
SELECT o.batch_id, o.lane
FROM (SELECT greatest(max(e.lanes), %(lanes)s) AS lanes FROM outbox.lane_epoch e) most
CROSS JOIN LATERAL (
    (SELECT s.batch_id, s.session_key, s.lane
     FROM generate_series(%(lanes)s, most.lanes - 1) AS n (lane)
     CROSS JOIN LATERAL (
         SELECT r.batch_id, r.session_key, r.lane
         FROM outbox.session_output r
         WHERE r.lane = n.lane AND r.batch_id > %(after_batch)s AND r.batch_id <= %(to_batch)s
         ORDER BY r.batch_id, r.session_key
         LIMIT 1
     ) s
     LIMIT 1)
    UNION ALL
    (SELECT r.batch_id, r.session_key, r.lane
     FROM outbox.session_output r
     WHERE r.lane >= most.lanes AND r.batch_id > %(after_batch)s AND r.batch_id <= %(to_batch)s
     LIMIT 1)
) o
LIMIT 1

-- name: kept_ranges
-- The batches whose rows retention has kept, as inclusive ranges, oldest first; neighbouring partitions form one range.
SELECT lower(k.kept), upper(k.kept) - 1
FROM (
    SELECT unnest(range_agg(int8range(p.from_batch, p.to_batch, '[]'))) AS kept
    FROM outbox.output_partition p
    WHERE NOT p.detaching
) k
ORDER BY 1

-- name: hold_off_retention
-- Held until the connection ends. Retention holds the same lock exclusively from its decision to the drop.
SELECT pg_advisory_lock_shared(hashtextextended('outbox.retention', 0))

-- name: outputs_of_key
-- Each output of a session key in a range of batches, in order. The offsets are those of its transaction, NULL if they are not recorded
-- (any more).
SELECT e.batch_id, e.outbox_id, e.revision, e.topic,
       CASE WHEN e.delivery_state = 'delivered' AND d.seq IS NULL AND e.skipped THEN 'skipped' ELSE e.delivery_state END AS state,
       d.committed_at AS delivered_at,
       (CASE WHEN e.target_partition IS NULL THEN d.kafka_offsets -> e.topic
             WHEN d.kafka_offsets #> ARRAY[e.topic, e.target_partition::text] IS NOT NULL
                THEN jsonb_build_object(e.target_partition, d.kafka_offsets #> ARRAY[e.topic, e.target_partition::text]) END)::text AS kafka_offsets,
       e.session_key, e.lane, e.epoch, d.seq
FROM outbox.event e
LEFT JOIN outbox.delivery d ON d.epoch = e.epoch AND d.lane = e.lane AND d.seq = e.delivery_seq
WHERE e.session_key = %(session_key)s
  AND e.batch_id >= %(from_batch)s AND e.batch_id <= %(to_batch)s
  AND (%(topic)s::text IS NULL OR e.topic = %(topic)s::text)
  AND (%(batch_ids)s::bigint[] IS NULL OR e.batch_id = ANY (%(batch_ids)s::bigint[]))
ORDER BY e.batch_id, e.session_end_offset, split_part(e.outbox_id, '/', 4)::integer
LIMIT %(rows)s::bigint
