-- For each topic: rows, events, bytes of values; and of the rows and sessions those that no earlier topic has counted.
SELECT e.topic, count(*), sum(e.events)::bigint, sum(e.bytes)::bigint, count(*) FILTER (WHERE e.first),
       coalesce(sum(cardinality(o.session_ends)) FILTER (WHERE e.first), 0)::bigint
FROM outbox.session_output o
CROSS JOIN LATERAL (
    SELECT u.topic, count(*) AS events, coalesce(sum(octet_length(u.value)), 0) AS bytes, row_number() OVER (ORDER BY u.topic) = 1 AS first
    FROM unnest(o.topics, o."values") AS u (topic, value)
    WHERE %(topics)s::text[] IS NULL OR u.topic = ANY (%(topics)s::text[])
    GROUP BY u.topic
) e
WHERE o.batch_id >= %(from_batch)s
  AND o.batch_id <= %(to_batch)s
  AND (%(keys)s::text[] IS NULL OR o.session_key = ANY (%(keys)s::text[]))
  AND NOT EXISTS (SELECT FROM outbox.parked p WHERE p.session_key = o.session_key AND p.batch_id = o.batch_id)
GROUP BY e.topic
