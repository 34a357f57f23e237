-- A 0 for each reason, so that the first letter is an increase.
SELECT r.reason,
       (SELECT count(*) FROM (SELECT FROM outbox.dead_letter d WHERE d.state = 'open' AND d.reason = r.reason LIMIT %(count_limit)s) counted)
FROM unnest(%(reasons)s::text[]) AS r (reason)
