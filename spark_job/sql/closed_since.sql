-- Sessions in the outbox that close at or after the positions `done`, each counted once, with the outputs of its newest revision.
SELECT count(*), coalesce(sum(c.outputs), 0)::bigint
FROM (
    SELECT DISTINCT ON (s.topic_id, s.partition, s.end_offset) s.outputs
    FROM outbox.session_output o
    CROSS JOIN LATERAL unnest(o.session_topic_ids, o.session_partitions, o.session_ends, o.session_outputs)
        AS s (topic_id, partition, end_offset, outputs)
    WHERE o.batch_id > coalesce(%(batch_id)s::bigint, (SELECT max(batch_id) FROM outbox.batch WHERE generation < %(generation)s::integer), 0)
        AND s.end_offset >= coalesce((%(done)s::jsonb -> s.topic_id ->> s.partition::text)::bigint, 0)
    ORDER BY s.topic_id, s.partition, s.end_offset, o.revision DESC, o.batch_id DESC
) c
