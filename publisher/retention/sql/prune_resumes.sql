-- Resumes whose deliveries are pruned and whose rows are gone on both sides: before that the audit needs them to tell what they skipped or repeated.
DELETE FROM outbox.delivery d
USING outbox.lane l
WHERE d.epoch = l.epoch AND d.lane = l.lane AND d.seq <= l.pruned_seq AND d.kind = 'resume'
  AND greatest(d.after_batch, d.to_batch) < %(floor)s
