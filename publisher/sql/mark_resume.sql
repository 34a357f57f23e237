-- Before Kafka's commit: from here on the mirror may be ahead of where the lane goes on. record_resume and the next successful step take it away.
UPDATE outbox.lane SET stopped_reason = %(reason)s, stopped_why = 'resuming'
WHERE epoch = %(epoch)s AND lane = %(lane)s AND lease_token = %(lease_token)s AND lease_holder IS NOT NULL
