SELECT topic_id, partition, max(first_offset)
FROM outbox.dead_letter
WHERE state = 'open' AND reason <> 'malformed' AND generation < %(generation)s
GROUP BY topic_id, partition
