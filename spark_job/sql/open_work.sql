SELECT coalesce(sum(open_sessions), 0)::bigint AS open_sessions, coalesce(sum(open_events), 0)::bigint AS open_events,
    coalesce(sum(open_bytes), 0)::bigint AS open_bytes, coalesce(max(state_bytes), 0)::bigint AS largest_bucket_bytes
FROM outbox.bucket
WHERE generation = %(generation)s
