-- Each claim of a lane raises its token by one.
SELECT coalesce(sum(l.lease_token), 0)::bigint FROM outbox.lane l
