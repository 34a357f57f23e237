-- Where a resume led from, which is what was delivered then, and to. One that does not say excuses nothing.
SELECT d.epoch, d.lane, d.seq, coalesce(d.after_batch, d.to_batch), CASE WHEN d.after_batch IS NULL THEN d.to_key ELSE d.after_key END,
       d.to_batch, d.to_key, coalesce(d.note, ''), d.committed_at
FROM outbox.delivery d
WHERE d.kind = 'resume'
ORDER BY d.epoch, d.lane, d.seq
