"""The open sessions between two batches: their table, and the chunks of their events.

- open_state.py: the open sessions of a partition, with their events.
- open_sessions.py: the table of open sessions, and its canonical form.
- live_sessions.py, segments.py: the table in segments, so that the cost of a change depends on its own size.
- chunks.py: events of open sessions, grouped by session.
- digests.py, digest_form.py: the digest, a sum over the open sessions by which two states are compared.
- binary.py: arrays as bytes.
"""
