SELECT assembly FROM outbox.generation WHERE generation = %(generation)s
