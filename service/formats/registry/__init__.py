"""A schema registry, asked with confluent-kafka's own client: TLS, credentials, retries and several addresses are the client's.

- schemas.py: the schemas of a registry by id, for each process.
- references.py: the schemas that one refers to.
- answers.py: a registry's answers: what is one, how much of it is read, and which are verdicts, outages or refusals.
- pauses.py: waits as long as Retry-After says.
- client.py: makes a client, and checks its credentials.
"""
