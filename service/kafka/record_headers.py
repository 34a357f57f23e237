"""A record's headers as confluent-kafka returns them, even if a header's name is not UTF-8.

confluent-kafka 2.16 hands over C strings. A name is cut off at a NUL. For a name that is not UTF-8, `Message.headers()` returns a list with
a hole and leaves an exception set; Python's specialised calls do not check for that exception, and crash
(docs/ecosystem.md#names-of-headers).
"""

import gc
from operator import methodcaller
from typing import Any

UNREADABLE = "\ufffd"
"""Stands for a name that is not UTF-8, as Java's replacement character does."""

# `methodcaller` calls `headers()` from C, where Python checks for the pending exception and raises SystemError instead of crashing.
_headers = methodcaller("headers")


def headers_of(message: Any) -> list[tuple[str, bytes | None]]:
    """Return the headers of a message of confluent-kafka, in their order: each name up to its first NUL, or UNREADABLE."""
    try:
        return _headers(message) or []
    except SystemError:
        # The message keeps the list, so a second call returns it. A pair whose name could not be decoded has a NULL in it: only
        # `gc.get_referents` reads it safely.
        return [_pair(gc.get_referents(pair)) for pair in _headers(message)]


def _pair(referents: list[Any]) -> tuple[str, bytes | None]:
    """Return a pair. `referents`: the objects that the pair refers to, last item first."""
    value, *name = referents
    return (name[0] if name else UNREADABLE), value
