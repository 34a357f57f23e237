"""The console: read-only pages about the outbox for people, served by a publisher or alone (docs/console.md).

- server.py, app.py: the console's own thread; the routes, the login, the texts of errors.
- http/: who may open the console, how many browsers may be connected, and how open pages stay up to date.
- reader.py, consumers.py: read-only connections to the outbox's Postgres and to a consumer's database.
- pages.py, flow.py, story.py, search.py: the queries of the pages. alerts/: conditions that need a person.
- rendering/: how values are shown, or hidden.
"""
