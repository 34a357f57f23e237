-- As record_delivery, but the mirror goes where it was asked to go, whatever it was; sessions and events are the totals.
-- `after`: up to where the lane's rows were known to be delivered, from which the audit tells what was skipped or is sent again.
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
