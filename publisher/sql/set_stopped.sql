UPDATE outbox.lane SET stopped_reason = %(reason)s
WHERE epoch = %(epoch)s AND lane = %(lane)s AND lease_token = %(lease_token)s
  AND stopped_reason IS DISTINCT FROM %(reason)s
