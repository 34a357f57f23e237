-- The batches whose rows retention has left, as ranges with both ends, oldest first; neighbouring partitions are one range.
SELECT lower(k.kept), upper(k.kept) - 1
FROM (
    SELECT unnest(range_agg(int8range(p.from_batch, p.to_batch, '[]'))) AS kept
    FROM outbox.output_partition p
    WHERE NOT p.detaching
) k
ORDER BY 1
