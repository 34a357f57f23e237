"""A schema registry. confluent-kafka's own client sends the requests: it handles TLS, credentials, retries and several addresses.

- schemas.py: the schemas of a registry by id, for each process.
- references.py: the schemas that a schema refers to.
- answers.py: whether an answer is a registry's, how much of it is read, and whether it is a verdict, an outage or a refusal.
- pauses.py: waits as long as Retry-After says.
- client.py: makes a client, and checks its credentials.
"""
