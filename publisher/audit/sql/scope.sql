-- The ledger, and the first batch of each partition whose rows are kept: retention drops whole ones, of 10,000 batches each.
SELECT (SELECT min(b.batch_id) FROM outbox.batch b),
       (SELECT max(b.batch_id) FROM outbox.batch b),
       (SELECT coalesce(array_agg(f.first ORDER BY f.first), '{}')
        FROM pg_inherits i
        JOIN pg_class c ON c.oid = i.inhrelid
        CROSS JOIN LATERAL (SELECT (regexp_match(c.relname, '^session_output_p(\d{8,})$'))[1]::bigint * 10000 AS first) f
        WHERE i.inhparent = 'outbox.session_output'::regclass AND NOT i.inhdetachpending),
       (SELECT min(b.batch_id) FROM outbox.batch b WHERE b.created_at >= %(since)s)
