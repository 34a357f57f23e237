-- Every row with a digest is written anew.
SET LOCAL statement_timeout = 0;

-- The release before would compute others from the same sessions, and stop. What a rebuild finds is taken as it comes where there is none.
UPDATE outbox.batch r
SET open_state = (
    SELECT jsonb_object_agg(t.topic_id, (
        SELECT coalesce(jsonb_object_agg(p.partition, CASE WHEN p.open ->> 'digest' LIKE '_-%' THEN p.open - 'digest' ELSE p.open END), '{}')
        FROM jsonb_each(t.partitions) AS p (partition, open)))
    FROM jsonb_each(r.open_state) AS t (topic_id, partitions))
WHERE jsonb_path_exists(r.open_state, '$.*.*.digest ? (@ like_regex "^.-")');
UPDATE outbox.generation r
SET open_state = (
    SELECT jsonb_object_agg(t.topic_id, (
        SELECT coalesce(jsonb_object_agg(p.partition, CASE WHEN p.open ->> 'digest' LIKE '_-%' THEN p.open - 'digest' ELSE p.open END), '{}')
        FROM jsonb_each(t.partitions) AS p (partition, open)))
    FROM jsonb_each(r.open_state) AS t (topic_id, partitions))
WHERE jsonb_path_exists(r.open_state, '$.*.*.digest ? (@ like_regex "^.-")');
UPDATE outbox.savepoint r
SET open_state = (
    SELECT jsonb_object_agg(t.topic_id, (
        SELECT coalesce(jsonb_object_agg(p.partition, CASE WHEN p.open ->> 'digest' LIKE '_-%' THEN p.open - 'digest' ELSE p.open END), '{}')
        FROM jsonb_each(t.partitions) AS p (partition, open)))
    FROM jsonb_each(r.open_state) AS t (topic_id, partitions))
WHERE jsonb_path_exists(r.open_state, '$.*.*.digest ? (@ like_regex "^.-")');

COMMENT ON COLUMN outbox.batch.open_state IS
    'what is open at end_offsets: {topic id: {partition: {"safe", "sessions", "events", "bytes", "digest", "tombstones", '
    '"upgraded"}}}. safe: offset of the oldest event of an open session; digest: of what is open, missing where it is not '
    'known; tombstones: base64, missing where there are none; upgraded: true from the upgrade to 0005 until the partition has '
    'records. A partition that is not named has nothing open. NULL: written before 0005, and not the newest of its generation';
