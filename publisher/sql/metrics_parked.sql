-- A 0 for each reason, so that the first parked row is an increase.
SELECT r.reason,
       (SELECT count(*) FROM (SELECT FROM outbox.parked p WHERE p.state = 'parked' AND p.reason = r.reason LIMIT %(count_limit)s) counted)
FROM unnest(ARRAY['too_large', 'invalid', 'topic_missing']) AS r (reason)
