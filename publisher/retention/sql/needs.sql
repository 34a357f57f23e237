-- What may still need the rows of a partition.

-- name: newest_batch
SELECT coalesce(max(b.batch_id), 0), min(b.created_at) FILTER (WHERE b.batch_id >= %(first_batch)s), max(b.created_at),
       count(*) FILTER (WHERE b.batch_id >= %(first_batch)s)
FROM outbox.batch b

-- name: lanes
-- Every lane of every epoch, also those that no publisher has run yet; `through`: the last batch of which nothing is left. A resume that did not
-- end (stopped_why) may have set the lane back in Kafka already, wherever the mirror is.
SELECT p.epoch, p.lane, p.from_batch, p.to_batch, CASE WHEN p.stopped_why = 'resuming' THEN p.from_batch - 1 ELSE p.through_batch END,
       p.lease_holder, p.stopped_reason
FROM outbox.lane_position p
ORDER BY p.epoch, p.lane

-- name: parked
SELECT p.batch_id, count(*) FROM outbox.parked p WHERE p.state = 'parked' GROUP BY p.batch_id ORDER BY p.batch_id

-- name: replays
-- What a replay still has to read.
SELECT r.replay_id, r.state, greatest(r.from_batch, r.cursor_batch), r.to_batch
FROM outbox.replay r
WHERE r.state IN ('running', 'paused')
ORDER BY r.replay_id

-- name: open_at_upgrade
-- Batches with outputs that close after the beginning of what was open when the schema was upgraded to 0005, in input partitions of which
-- the job has read nothing since: with the next records there it writes the dead letters that are missing, and looks for outputs that
-- cover their events. `end` is exclusive; a batch that read nothing of an input partition closed nothing there.
WITH upgraded AS (
    SELECT coalesce(b.open_state, g.open_state) AS open_state
    FROM (SELECT generation, open_state FROM outbox.generation ORDER BY generation DESC LIMIT 1) g
    LEFT JOIN LATERAL (
        SELECT n.open_state FROM outbox.batch n WHERE n.generation = g.generation AND n.kind = 'stream' ORDER BY n.batch_id DESC LIMIT 1
    ) b ON true
)
SELECT t.topic_id, p.partition::integer, s.safe_offset, count(*), min(b.batch_id), max(b.batch_id)
FROM upgraded
CROSS JOIN LATERAL jsonb_each(upgraded.open_state) AS t (topic_id, partitions)
CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, open)
CROSS JOIN LATERAL (SELECT (p.open ->> 'safe')::bigint AS safe_offset) s
CROSS JOIN outbox.batch b
CROSS JOIN LATERAL (SELECT (b.end_offsets #>> ARRAY[t.topic_id, p.partition])::bigint AS end_offset) e
WHERE p.open ? 'upgraded'
  AND b.batch_id >= %(first_batch)s AND b.batch_id < %(end_batch)s AND b.kind = 'stream' AND b.sessions > 0
  AND e.end_offset > s.safe_offset
  AND e.end_offset > coalesce((b.start_offsets #>> ARRAY[t.topic_id, p.partition])::bigint, 0)
GROUP BY t.topic_id, p.partition, s.safe_offset
ORDER BY t.topic_id, p.partition::integer
