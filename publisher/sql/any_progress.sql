SELECT EXISTS (SELECT FROM outbox.lane l WHERE l.seq > 0) OR EXISTS (SELECT FROM outbox.delivery)
