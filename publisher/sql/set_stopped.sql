UPDATE outbox.lane SET stopped_reason = %(reason)s, stopped_why = %(why)s
WHERE epoch = %(epoch)s AND lane = %(lane)s AND lease_token = %(lease_token)s
  AND (stopped_reason, stopped_why) IS DISTINCT FROM (%(reason)s::text, %(why)s::text)
