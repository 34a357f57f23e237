SELECT generation, directory_token, reason FROM outbox.generation
