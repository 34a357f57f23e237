-- name: missing
SELECT NOT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'outbox_consumer_letter')

-- name: position_table
CREATE TABLE IF NOT EXISTS outbox_consumer_position (
    consumer text,
    topic text,
    partition int,
    topic_id text NOT NULL,
    first_offset bigint NOT NULL,
    next_offset bigint NOT NULL CHECK (next_offset >= 0),
    leader_epoch int,
    moved_at text NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CONSTRAINT outbox_consumer_position_key PRIMARY KEY (consumer, topic, partition)
)

-- name: seen_table
-- One row for each consumed output, with the greatest revision. `source`: topic id and partition of the session's end.
CREATE TABLE IF NOT EXISTS outbox_consumer_seen (
    consumer text,
    source text,
    end_offset bigint,
    output int,
    revision int NOT NULL,
    replaces int,
    topic text NOT NULL,
    partition int NOT NULL,
    "offset" bigint NOT NULL,
    seen_at text NOT NULL DEFAULT CURRENT_TIMESTAMP,
    retried boolean NOT NULL,
    CONSTRAINT outbox_consumer_seen_key PRIMARY KEY (consumer, source, end_offset, output)
)

-- name: seen_index
CREATE INDEX IF NOT EXISTS outbox_consumer_seen_at ON outbox_consumer_seen (consumer, seen_at)

-- name: forgotten_table
CREATE TABLE IF NOT EXISTS outbox_consumer_forgotten (
    consumer text,
    source text,
    end_offset bigint NOT NULL,
    CONSTRAINT outbox_consumer_forgotten_key PRIMARY KEY (consumer, source)
)

-- name: letter_table
CREATE TABLE IF NOT EXISTS outbox_consumer_letter (
    consumer text,
    topic text,
    topic_id text,
    partition int,
    "offset" bigint,
    outbox_id text,
    revision int NOT NULL,
    replay text,
    key blob,
    value blob,
    headers text NOT NULL,
    timestamp_ms bigint,
    reason text NOT NULL,
    set_aside_at text NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CONSTRAINT outbox_consumer_letter_key PRIMARY KEY (consumer, topic, topic_id, partition, "offset")
)

-- name: positions
SELECT partition, topic_id, next_offset, leader_epoch
FROM outbox_consumer_position
WHERE consumer = :consumer AND topic = :topic

-- name: first_position
INSERT INTO outbox_consumer_position (consumer, topic, partition, topic_id, first_offset, next_offset)
VALUES (:consumer, :topic, :partition, :topic_id, :next_offset, :next_offset)
ON CONFLICT (consumer, topic, partition) DO NOTHING

-- name: lock
-- A statement that writes, so that this transaction holds SQLite's only write lock until it ends.
UPDATE outbox_consumer_position SET moved_at = moved_at
WHERE consumer = :consumer AND topic = :topic AND partition = :partition
RETURNING topic_id, next_offset, leader_epoch, :idle_ms

-- name: claim
INSERT INTO outbox_consumer_seen AS seen (consumer, source, end_offset, output, revision, topic, partition, "offset", retried)
SELECT :consumer, json_extract(value, '$.source'), json_extract(value, '$.end_offset'), json_extract(value, '$.output'),
    json_extract(value, '$.revision'), :topic, :partition, json_extract(value, '$.offset'), :retried
FROM json_each(:outputs)
WHERE true
ON CONFLICT (consumer, source, end_offset, output) DO UPDATE
SET revision = EXCLUDED.revision, replaces = seen.revision, topic = EXCLUDED.topic, partition = EXCLUDED.partition,
    "offset" = EXCLUDED."offset", seen_at = CURRENT_TIMESTAMP, retried = EXCLUDED.retried
WHERE seen.revision < EXCLUDED.revision
RETURNING source, end_offset, output, replaces

-- name: unclaim
DELETE FROM outbox_consumer_seen
WHERE consumer = :consumer AND source = :source AND end_offset = :end_offset AND output = :output

-- name: forgotten
SELECT source, end_offset FROM outbox_consumer_forgotten WHERE consumer = :consumer

-- name: forgotten_of
SELECT source, end_offset FROM outbox_consumer_forgotten
WHERE consumer = :consumer AND source IN (SELECT value FROM json_each(:sources))

-- name: note_forgotten
INSERT INTO outbox_consumer_forgotten AS forgotten (consumer, source, end_offset)
SELECT consumer, source, max(end_offset)
FROM outbox_consumer_seen
WHERE consumer = :consumer AND seen_at < :before
GROUP BY consumer, source
ON CONFLICT (consumer, source) DO UPDATE SET end_offset = max(forgotten.end_offset, EXCLUDED.end_offset)

-- name: forget
DELETE FROM outbox_consumer_seen WHERE consumer = :consumer AND seen_at < :before

-- name: advance
UPDATE outbox_consumer_position
SET next_offset = :next_offset, leader_epoch = :leader_epoch, moved_at = CURRENT_TIMESTAMP
WHERE consumer = :consumer AND topic = :topic AND partition = :partition

-- name: set_aside
INSERT INTO outbox_consumer_letter
    (consumer, topic, topic_id, partition, "offset", outbox_id, revision, replay, key, value, headers, timestamp_ms, reason)
VALUES
    (:consumer, :topic, :topic_id, :partition, :offset, :outbox_id, :revision, :replay, :key, :value,
     :headers, :timestamp_ms, :reason)
ON CONFLICT (consumer, topic, topic_id, partition, "offset") DO UPDATE SET reason = EXCLUDED.reason, set_aside_at = CURRENT_TIMESTAMP

-- name: letters
SELECT topic, topic_id, partition, "offset"
FROM outbox_consumer_letter
WHERE consumer = :consumer
ORDER BY topic, topic_id, partition, "offset"

-- name: take
SELECT key, value, headers, timestamp_ms
FROM outbox_consumer_letter
WHERE consumer = :consumer AND topic = :topic AND topic_id = :topic_id AND partition = :partition AND "offset" = :offset

-- name: discard
DELETE FROM outbox_consumer_letter
WHERE consumer = :consumer AND topic = :topic AND topic_id = :topic_id AND partition = :partition AND "offset" = :offset

-- name: all_positions
SELECT consumer, topic, partition, topic_id, first_offset, next_offset
FROM outbox_consumer_position
ORDER BY consumer, topic, partition

-- name: count
SELECT count(*) FROM outbox_consumer_seen WHERE consumer = :consumer

-- name: consumed
SELECT source, end_offset, output, revision, topic, partition, "offset", CAST(strftime('%s', seen_at) AS integer) * 1000000, retried
FROM outbox_consumer_seen
WHERE consumer = :consumer

-- name: kept_aside
-- Only of topics as they are now: the position belongs to them.
SELECT outbox_id, revision, topic, partition, "offset"
FROM outbox_consumer_letter
JOIN outbox_consumer_position USING (consumer, topic, partition, topic_id)
WHERE consumer = :consumer AND outbox_id IS NOT NULL

-- name: consumed_as
-- Uses the index, whose first column is the consumer, because the cost must not grow with the number of remembered outputs.
WITH RECURSIVE known (consumer) AS (
    SELECT min(consumer) FROM outbox_consumer_seen
    UNION ALL
    SELECT (SELECT min(seen.consumer) FROM outbox_consumer_seen AS seen WHERE seen.consumer > known.consumer)
    FROM known
    WHERE known.consumer IS NOT NULL
)
SELECT json_extract(asked.value, '$.outbox_id'), seen.consumer, seen.revision, seen.topic, seen.partition, seen."offset", seen.seen_at,
    seen.replaces, seen.retried
FROM known
CROSS JOIN json_each(:outputs) AS asked
CROSS JOIN outbox_consumer_seen AS seen
    ON seen.consumer = known.consumer AND seen.source = json_extract(asked.value, '$.source')
    AND seen.end_offset = json_extract(asked.value, '$.end_offset') AND seen.output = json_extract(asked.value, '$.output')
ORDER BY seen.consumer

-- name: kept_aside_as
-- The newest of each output, and how many there are. Their number is limited, because whoever may write to the topic can create them.
SELECT outbox_id, consumer, revision, topic, partition, "offset", at, reason, letters
FROM (
    SELECT outbox_id, consumer, revision, topic, partition, "offset", set_aside_at AS at, substr(reason, 1, :chars) AS reason,
        row_number() OVER (PARTITION BY outbox_id ORDER BY set_aside_at DESC, consumer, topic, partition, "offset" DESC) AS nth,
        count(*) OVER (PARTITION BY outbox_id) AS letters
    FROM outbox_consumer_letter
    WHERE outbox_id IN (SELECT json_extract(value, '$.outbox_id') FROM json_each(:outputs))
) AS found
WHERE nth <= :rows
ORDER BY consumer, topic, partition, "offset"
