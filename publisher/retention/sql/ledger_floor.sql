-- Below it every output is gone and delivered. Also below every lane that still has to deliver, should somebody have dropped a table by hand.
SELECT least(
    (SELECT min(p.from_batch) FROM outbox.output_partition p),
    (SELECT min(CASE WHEN p.stopped_why = 'resuming' THEN p.from_batch - 1 ELSE p.through_batch END)
     FROM outbox.lane_position p
     WHERE p.stopped_why = 'resuming' OR NOT p.ended),
    (SELECT min(greatest(r.from_batch, r.cursor_batch)) FROM outbox.replay r WHERE r.state IN ('running', 'paused')),
    (SELECT min(p.batch_id) FROM outbox.parked p WHERE p.state = 'parked'),
    (SELECT max(b.batch_id) FROM outbox.batch b))
