"""The open sessions between two batches: their table, and the chunks of their events.

- open_state.py: the open sessions of a partition, with their events.
- open_sessions.py: the table of open sessions, in its one canonical form.
- live_sessions.py, segments.py: the table in segments, so that a change costs what it changes.
- chunks.py: events of open sessions, those of a session together.
- digests.py, digest_form.py: the sum over the open sessions that proves them equal.
- binary.py: arrays as bytes.
"""
