-- A resume that did not end stays known as one until the lane runs: retention asks for it.
UPDATE outbox.lane AS l SET stopped_reason = %(reason)s, stopped_why = found.why
FROM (
    SELECT o.epoch, o.lane, CASE WHEN o.stopped_why = 'resuming' AND %(reason)s::text IS NOT NULL THEN o.stopped_why ELSE %(why)s::text END AS why
    FROM outbox.lane o WHERE o.epoch = %(epoch)s AND o.lane = %(lane)s
) found
WHERE l.epoch = found.epoch AND l.lane = found.lane AND l.lease_token = %(lease_token)s
  AND (l.stopped_reason, l.stopped_why) IS DISTINCT FROM (%(reason)s::text, found.why)
