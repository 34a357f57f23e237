SELECT coalesce(sum(l.taken), 0)::bigint FROM outbox.lane l
