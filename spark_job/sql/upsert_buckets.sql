INSERT INTO outbox.bucket (generation, bucket, batch_id, open_sessions, open_events, open_bytes, state_bytes, oldest_open)
SELECT %(generation)s, s.bucket, %(batch_id)s, s.open_sessions, s.open_events, s.open_bytes, s.state_bytes, s.oldest_open
FROM unnest(
    %(buckets)s::integer[], %(open_sessions)s::integer[], %(open_events)s::bigint[], %(open_bytes)s::bigint[], %(state_bytes)s::bigint[],
    %(oldest_open)s::jsonb[]
) s(bucket, open_sessions, open_events, open_bytes, state_bytes, oldest_open)
ON CONFLICT ON CONSTRAINT bucket_pkey DO UPDATE SET
    batch_id = excluded.batch_id, open_sessions = excluded.open_sessions, open_events = excluded.open_events,
    open_bytes = excluded.open_bytes, state_bytes = excluded.state_bytes, oldest_open = excluded.oldest_open
