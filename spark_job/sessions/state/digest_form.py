"""The form of open sessions' digests. Imports nothing: commands that only show a position start without numpy and Arrow."""

DIGEST_FORM = "3-"
"""The prefix of each digest. A release that computes digests differently has another prefix, and ignores digests with this one."""
