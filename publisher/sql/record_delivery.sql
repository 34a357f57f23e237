-- The mirror and the delivery in one statement; no row is written when the lease or the mirror is another's.
-- Returns whether the ledger still has the batches at both ends of what was read ahead.
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
