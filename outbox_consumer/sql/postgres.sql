-- name: missing
SELECT to_regclass('outbox_consumer_letter') IS NULL

-- name: alone
SELECT pg_advisory_xact_lock(7461926805217094)

-- name: position_table
CREATE TABLE IF NOT EXISTS outbox_consumer_position (
    consumer text COLLATE "C",
    topic text COLLATE "C",
    partition int,
    topic_id text NOT NULL,
    first_offset bigint NOT NULL,
    next_offset bigint NOT NULL CHECK (next_offset >= 0),
    leader_epoch int,
    moved_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT outbox_consumer_position_key PRIMARY KEY (consumer, topic, partition)
)

-- name: seen_table
-- One row for each consumed output, with the greatest revision. `source`: topic id and partition of the session's end.
CREATE TABLE IF NOT EXISTS outbox_consumer_seen (
    consumer text COLLATE "C",
    source text COLLATE "C",
    end_offset bigint,
    output int,
    revision int NOT NULL,
    replaces int,
    topic text NOT NULL,
    partition int NOT NULL,
    "offset" bigint NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    retried boolean NOT NULL,
    CONSTRAINT outbox_consumer_seen_key PRIMARY KEY (consumer, source, end_offset, output)
)

-- name: seen_index
-- Small, and sufficient for deletions by age.
CREATE INDEX IF NOT EXISTS outbox_consumer_seen_at ON outbox_consumer_seen USING brin (seen_at)

-- name: forgotten_table
CREATE TABLE IF NOT EXISTS outbox_consumer_forgotten (
    consumer text COLLATE "C",
    source text COLLATE "C",
    end_offset bigint NOT NULL,
    CONSTRAINT outbox_consumer_forgotten_key PRIMARY KEY (consumer, source)
)

-- name: letter_table
CREATE TABLE IF NOT EXISTS outbox_consumer_letter (
    consumer text COLLATE "C",
    topic text COLLATE "C",
    topic_id text COLLATE "C",
    partition int,
    "offset" bigint,
    outbox_id text,
    revision int NOT NULL,
    replay text,
    key bytea,
    value bytea,
    headers text NOT NULL,
    timestamp_ms bigint,
    reason text NOT NULL,
    set_aside_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT outbox_consumer_letter_key PRIMARY KEY (consumer, topic, topic_id, partition, "offset")
)

-- name: positions
SELECT partition, topic_id, next_offset, leader_epoch
FROM outbox_consumer_position
WHERE consumer = %(consumer)s AND topic = %(topic)s

-- name: first_position
INSERT INTO outbox_consumer_position (consumer, topic, partition, topic_id, first_offset, next_offset)
VALUES (%(consumer)s, %(topic)s, %(partition)s, %(topic_id)s, %(next_offset)s, %(next_offset)s)
ON CONFLICT (consumer, topic, partition) DO NOTHING

-- name: lock
-- No other process can move the position until this transaction ends. If this process freezes, Postgres ends the transaction.
SELECT topic_id, next_offset, leader_epoch, set_config('idle_in_transaction_session_timeout', %(idle_ms)s, true)
FROM outbox_consumer_position
WHERE consumer = %(consumer)s AND topic = %(topic)s AND partition = %(partition)s
FOR UPDATE

-- name: claim
-- This statement begins while the position's row is locked, so that within a partition `seen_at` never decreases, whenever transactions
-- began.
INSERT INTO outbox_consumer_seen AS seen (consumer, source, end_offset, output, revision, topic, partition, "offset", retried)
SELECT %(consumer)s::text, asked.source, asked.end_offset, asked.output, asked.revision, %(topic)s::text, %(partition)s::int,
    asked."offset", %(retried)s::boolean
FROM jsonb_to_recordset(%(outputs)s::jsonb)
    AS asked (source text, end_offset bigint, output int, revision int, "offset" bigint)
ORDER BY asked.source COLLATE "C", asked.end_offset, asked.output
ON CONFLICT (consumer, source, end_offset, output) DO UPDATE
SET revision = EXCLUDED.revision, replaces = seen.revision, topic = EXCLUDED.topic, partition = EXCLUDED.partition,
    "offset" = EXCLUDED."offset", seen_at = statement_timestamp(), retried = EXCLUDED.retried
WHERE seen.revision < EXCLUDED.revision
RETURNING source, end_offset, output, replaces

-- name: unclaim
DELETE FROM outbox_consumer_seen
WHERE consumer = %(consumer)s AND source = %(source)s AND end_offset = %(end_offset)s AND output = %(output)s

-- name: forgotten
SELECT source, end_offset FROM outbox_consumer_forgotten WHERE consumer = %(consumer)s

-- name: forgotten_of
SELECT source, end_offset FROM outbox_consumer_forgotten
WHERE consumer = %(consumer)s AND source IN (SELECT jsonb_array_elements_text(%(sources)s::jsonb))

-- name: note_forgotten
INSERT INTO outbox_consumer_forgotten AS forgotten (consumer, source, end_offset)
SELECT consumer, source, max(end_offset)
FROM outbox_consumer_seen
WHERE consumer = %(consumer)s AND seen_at < %(before)s
GROUP BY consumer, source
ON CONFLICT (consumer, source) DO UPDATE SET end_offset = greatest(forgotten.end_offset, EXCLUDED.end_offset)

-- name: forget
DELETE FROM outbox_consumer_seen WHERE consumer = %(consumer)s AND seen_at < %(before)s

-- name: advance
UPDATE outbox_consumer_position
SET next_offset = %(next_offset)s, leader_epoch = %(leader_epoch)s, moved_at = now()
WHERE consumer = %(consumer)s AND topic = %(topic)s AND partition = %(partition)s

-- name: set_aside
INSERT INTO outbox_consumer_letter
    (consumer, topic, topic_id, partition, "offset", outbox_id, revision, replay, key, value, headers, timestamp_ms, reason)
VALUES
    (%(consumer)s, %(topic)s, %(topic_id)s, %(partition)s, %(offset)s, %(outbox_id)s, %(revision)s, %(replay)s, %(key)s, %(value)s,
     %(headers)s, %(timestamp_ms)s, %(reason)s)
ON CONFLICT (consumer, topic, topic_id, partition, "offset") DO UPDATE SET reason = EXCLUDED.reason, set_aside_at = now()

-- name: letters
SELECT topic, topic_id, partition, "offset"
FROM outbox_consumer_letter
WHERE consumer = %(consumer)s
ORDER BY topic, topic_id, partition, "offset"

-- name: take
SELECT key, value, headers, timestamp_ms
FROM outbox_consumer_letter
WHERE consumer = %(consumer)s AND topic = %(topic)s AND topic_id = %(topic_id)s AND partition = %(partition)s AND "offset" = %(offset)s
FOR UPDATE

-- name: discard
DELETE FROM outbox_consumer_letter
WHERE consumer = %(consumer)s AND topic = %(topic)s AND topic_id = %(topic_id)s AND partition = %(partition)s AND "offset" = %(offset)s

-- name: all_positions
SELECT consumer, topic, partition, topic_id, first_offset, next_offset
FROM outbox_consumer_position
ORDER BY consumer, topic, partition

-- name: count
SELECT count(*) FROM outbox_consumer_seen WHERE consumer = %(consumer)s

-- name: consumed
SELECT source, end_offset, output, revision, topic, partition, "offset", (extract(epoch FROM seen_at) * 1000000)::bigint, retried
FROM outbox_consumer_seen
WHERE consumer = %(consumer)s

-- name: kept_aside
-- Only of topics as they are now: the position belongs to them.
SELECT outbox_id, revision, topic, partition, "offset"
FROM outbox_consumer_letter
JOIN outbox_consumer_position USING (consumer, topic, partition, topic_id)
WHERE consumer = %(consumer)s AND outbox_id IS NOT NULL

-- name: consumed_as
-- Uses the index, whose first column is the consumer, because the cost must not grow with the number of remembered outputs.
WITH RECURSIVE known (consumer) AS (
    SELECT min(consumer) FROM outbox_consumer_seen
    UNION ALL
    SELECT (SELECT min(seen.consumer) FROM outbox_consumer_seen AS seen WHERE seen.consumer > known.consumer)
    FROM known
    WHERE known.consumer IS NOT NULL
)
SELECT asked.outbox_id, seen.consumer, seen.revision, seen.topic, seen.partition, seen."offset", seen.seen_at::timestamptz(0)::text,
    seen.replaces, seen.retried
FROM known
CROSS JOIN jsonb_to_recordset(%(outputs)s::jsonb) AS asked (outbox_id text, source text, end_offset bigint, output int)
JOIN outbox_consumer_seen AS seen
    ON seen.consumer = known.consumer AND seen.source = asked.source AND seen.end_offset = asked.end_offset AND seen.output = asked.output
ORDER BY seen.consumer

-- name: kept_aside_as
-- The newest of each output, and how many there are. Their number is limited, because whoever may write to the topic can create them.
SELECT outbox_id, consumer, revision, topic, partition, "offset", at, reason, letters
FROM (
    SELECT outbox_id, consumer, revision, topic, partition, "offset", set_aside_at::timestamptz(0)::text AS at, left(reason, %(chars)s) AS reason,
        row_number() OVER (PARTITION BY outbox_id ORDER BY set_aside_at DESC, consumer, topic, partition, "offset" DESC) AS nth,
        count(*) OVER (PARTITION BY outbox_id) AS letters
    FROM outbox_consumer_letter
    WHERE outbox_id IN (SELECT asked.outbox_id FROM jsonb_to_recordset(%(outputs)s::jsonb) AS asked (outbox_id text))
) AS found
WHERE nth <= %(rows)s
ORDER BY consumer, topic, partition, "offset"
