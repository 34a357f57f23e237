"""The console: read-only pages about the outbox for people, served by a publisher or alone (docs/console.md).

- server.py, app.py: a thread of its own; the routes, the login, the texts of errors.
- access.py, token_throttle.py: who may open it, and how fast tokens can be tried.
- http_connections.py: how many browsers may be connected, and for how long without a request.
- reader.py, consumers.py: connections that can only read, to the outbox's Postgres and to a consumer's.
- pages.py, flow.py, story.py, search.py: the queries of the pages. alerts/: conditions that need a person.
- live.py: sends open pages their new content.
- rendering.py, masking.py, schemas.py: how values are shown, or hidden.
"""
