SELECT k.session_key
FROM unnest(%(keys)s::text[]) AS k (session_key)
WHERE NOT EXISTS (
    SELECT FROM outbox.session_output o
    WHERE o.session_key = k.session_key AND o.batch_id >= %(from_batch)s AND o.batch_id <= %(to_batch)s)
ORDER BY k.session_key
