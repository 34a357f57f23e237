-- The upper bound comes out of the ledger and the epochs themselves, so that nothing has to be read before the rows.
-- batch_id twice: the row comparison walks the index, the plain one prunes partitions.
SELECT o.batch_id, o.session_key, o.revision, o.session_topic_ids, o.session_partitions, o.session_ends, o.session_outputs,
       o.topics, o."values", o.keys, o.headers, o.partitions, o.timestamps_ms
FROM outbox.session_output o
WHERE o.lane = %(lane)s
  AND o.batch_id >= %(from_batch)s
  AND o.batch_id <= least(%(to_batch)s, (SELECT max(b.batch_id) FROM outbox.batch b),
                          (SELECT min(e.from_batch) - 1 FROM outbox.lane_epoch e WHERE e.epoch > %(epoch)s))
  AND (o.batch_id, o.session_key) > (%(from_batch)s, %(from_key)s)
ORDER BY o.batch_id, o.session_key
LIMIT %(rows)s
