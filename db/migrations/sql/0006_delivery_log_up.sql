-- Deliveries up to this one are deleted, but for resumes, which the audit needs for as long as the rows are kept that they led over.
-- It is there where this revision was taken back.
ALTER TABLE outbox.lane ADD COLUMN IF NOT EXISTS pruned_seq bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN outbox.lane.pruned_seq IS 'deliveries of this lane up to this seq are pruned; resumes among them may be kept';

-- Retention has pruned before only where rows were dropped.
UPDATE outbox.lane l
SET pruned_seq = greatest(l.pruned_seq, d.seq - 1)
FROM outbox.lane f
CROSS JOIN LATERAL (SELECT k.seq FROM outbox.delivery k WHERE k.epoch = f.epoch AND k.lane = f.lane ORDER BY k.seq LIMIT 1) d
WHERE f.epoch = l.epoch AND f.lane = l.lane AND d.seq > 1
  AND NOT EXISTS (SELECT FROM outbox.output_partition p WHERE NOT p.detaching AND p.from_batch <= 1);

ALTER TABLE outbox.lane ADD CONSTRAINT lane_pruned_natural CHECK (pruned_seq >= 0);

-- As before, but the first one that is kept is the one after what was pruned.
CREATE OR REPLACE VIEW outbox.check_delivery_chain AS
SELECT
    d.epoch,
    d.lane,
    d.seq,
    d.after_batch,
    d.to_batch,
    greatest(1, d.seq - f.seq - 1) AS missing,
    CASE WHEN d.seq <> f.seq + 1 THEN 'after delivery ' || f.seq || ' comes ' || d.seq
         ELSE 'delivery ' || d.seq || ' begins after ' || outbox.cursor_text(d.after_batch, d.after_key) || ', the one before it ended with '
              || outbox.cursor_text(f.to_batch, f.to_key) END AS detail
FROM outbox.delivery d
JOIN outbox.lane_epoch e ON e.epoch = d.epoch
LEFT JOIN outbox.lane l ON l.epoch = d.epoch AND l.lane = d.lane
LEFT JOIN LATERAL (
    SELECT k.seq, k.to_batch, k.to_key FROM outbox.delivery k
    WHERE k.epoch = d.epoch AND k.lane = d.lane AND k.seq < d.seq AND k.seq > coalesce(l.pruned_seq, 0)
    ORDER BY k.seq DESC
    LIMIT 1
) former ON true
CROSS JOIN LATERAL (
    SELECT coalesce(former.seq, l.pruned_seq, 0) AS seq,
           CASE WHEN former.seq IS NOT NULL THEN former.to_batch WHEN d.seq = 1 THEN e.from_batch - 1 END AS to_batch,
           former.to_key
) f
WHERE d.kind = 'delivery'
  AND (d.seq <> f.seq + 1
       OR (d.after_batch IS NOT NULL AND f.to_batch IS NOT NULL AND (d.after_batch, d.after_key) IS DISTINCT FROM (f.to_batch, f.to_key)));

GRANT DELETE ON outbox.delivery TO outbox_publisher;
GRANT UPDATE (pruned_seq) ON outbox.lane TO outbox_publisher;
