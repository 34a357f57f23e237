SELECT reason, count(*) AS letters, sum(event_count) AS events, min(detail) AS for_example
FROM outbox.dead_letter
GROUP BY reason
ORDER BY reason
