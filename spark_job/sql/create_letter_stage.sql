CREATE TEMPORARY TABLE letter_stage (
    topic_id text, topic text, partition integer, first_offset bigint, last_offset bigint, closing_offset bigint, reason text,
    session_key text COLLATE "C", detail text, event_count integer, event_offsets bigint[], event_times_ms bigint[], event_values bytea[], event_types text[]
) ON COMMIT DROP
