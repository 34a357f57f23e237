-- Deliveries: the contents of each committed Kafka transaction.

-- name: record
-- The mirror and the delivery in one statement. Writes no row if another holder has the lease, or if the mirror is not one transaction
-- behind. Returns whether the ledger still has the batches at both ends of the chunk that was read ahead.
WITH mirrored AS (
    UPDATE outbox.lane
    SET seq = %(seq)s,
        cursor_batch = %(to_batch)s,
        cursor_key = %(to_key)s,
        cursor_commit_id = %(commit_id)s,
        sessions = sessions + %(sessions)s,
        events = events + %(events)s,
        mirrored_at = now(),
        lease_until = now() + make_interval(secs => %(lease_s)s)
    WHERE epoch = %(epoch)s AND lane = %(lane)s AND lease_token = %(lease_token)s AND lease_holder IS NOT NULL
      AND seq = %(seq)s - 1
    RETURNING epoch, lane
)
INSERT INTO outbox.delivery (epoch, lane, seq, after_batch, after_key, to_batch, to_key, sessions, events, kafka_offsets)
SELECT m.epoch, m.lane, %(seq)s, %(after_batch)s, %(after_key)s, %(to_batch)s, %(to_key)s, %(sessions)s, %(events)s,
       %(kafka_offsets)s
FROM mirrored m
RETURNING EXISTS (SELECT FROM outbox.batch b WHERE b.batch_id = %(to_batch)s AND b.commit_id = %(commit_id)s)
      AND EXISTS (SELECT FROM outbox.batch b WHERE b.batch_id = %(ahead_batch)s AND b.commit_id = %(ahead_commit_id)s)

-- name: record_resume
-- As `record`, but sets the mirror to the requested position, whatever its position was. Sessions and events are the totals up to there.
-- `after`: the cursor up to which the lane's rows were known to be delivered. From it the audit derives what was skipped or is sent again.
WITH mirrored AS (
    UPDATE outbox.lane
    SET seq = %(seq)s,
        cursor_batch = %(to_batch)s,
        cursor_key = %(to_key)s,
        cursor_commit_id = %(commit_id)s,
        sessions = %(sessions)s,
        events = %(events)s,
        mirrored_at = now(),
        stopped_reason = NULL,
        stopped_why = NULL,
        lease_until = now() + make_interval(secs => %(lease_s)s)
    WHERE epoch = %(epoch)s AND lane = %(lane)s AND lease_token = %(lease_token)s AND lease_holder IS NOT NULL
    RETURNING epoch, lane
)
INSERT INTO outbox.delivery (epoch, lane, seq, after_batch, after_key, to_batch, to_key, sessions, events, kind, note)
SELECT m.epoch, m.lane, %(seq)s, %(after_batch)s, %(after_key)s, %(to_batch)s, %(to_key)s, 0, 0, 'resume', %(note)s
FROM mirrored m

-- name: rates
-- The deliveries of the last minute and of the last five minutes, from the index on committed_at.
SELECT w.seconds, count(d.seq) AS transactions, coalesce(sum(d.sessions), 0)::bigint AS sessions, coalesce(sum(d.events), 0)::bigint AS events
FROM unnest(ARRAY[60, 300]) AS w (seconds)
LEFT JOIN outbox.delivery d ON d.kind = 'delivery' AND d.committed_at > now() - make_interval(secs => w.seconds)
GROUP BY w.seconds
ORDER BY w.seconds
