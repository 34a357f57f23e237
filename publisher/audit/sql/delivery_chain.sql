-- Each delivery of a lane continues the former: the next seq, from where that ended. A resume leads elsewhere knowingly, after
-- deliveries that a restored database may have forgotten.
SELECT d.epoch, d.lane, d.seq, d.former_seq, d.after_batch, d.after_key, d.former_batch, d.former_key, d.to_batch, d.to_key
FROM (
    SELECT d.*, e.from_batch,
           lag(d.seq, 1, CASE WHEN %(complete)s THEN 0::bigint END) OVER w AS former_seq,
           lag(d.to_batch, 1, CASE d.seq WHEN 1 THEN e.from_batch - 1 END) OVER w AS former_batch, lag(d.to_key) OVER w AS former_key
    FROM outbox.delivery d
    JOIN outbox.lane_epoch e ON e.epoch = d.epoch
    WINDOW w AS (PARTITION BY d.epoch, d.lane ORDER BY d.seq)
) d
WHERE d.to_batch >= %(from_batch)s AND coalesce(d.after_batch, 0) <= %(to_batch)s
  AND ((d.kind = 'delivery' AND d.seq <> d.former_seq + 1)
       OR (d.kind = 'delivery' AND d.after_batch IS NOT NULL AND d.former_batch IS NOT NULL
           AND (d.after_batch, d.after_key) IS DISTINCT FROM (d.former_batch, d.former_key)))
ORDER BY d.epoch, d.lane, d.seq
