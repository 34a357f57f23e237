-- Where a resume led from and to. The cursor before it is the former delivery's where the resume does not say.
SELECT d.epoch, d.lane, d.seq, coalesce(d.after_batch, p.to_batch, 0), CASE WHEN d.after_batch IS NULL THEN p.to_key ELSE d.after_key END,
       d.to_batch, d.to_key, coalesce(d.note, '')
FROM outbox.delivery d
LEFT JOIN outbox.delivery p ON p.epoch = d.epoch AND p.lane = d.lane AND p.seq = d.seq - 1
WHERE d.kind = 'resume'
ORDER BY d.epoch, d.lane, d.seq
