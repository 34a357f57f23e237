"""Transforms for the acceptance tests: cheap, and their outputs show what the session was made of."""

import os
import signal
from collections.abc import Iterable
from hashlib import blake2b

from spark_job import OutputEvent, Session

INPUT = "in"
PAGES = "pages"
CARTS = "carts"
LETTERS = "letters"
GREEN = "green-"
"""Ends of the topics' names; before them stands a beginning that all topics of a pipeline share, and GREEN in those of `green`."""

_PAGES_PER_SESSION = 15
FAILS_EVERY = 97
_SILENT_EVERY = 53


class RefusedSessionError(Exception):
    """What the transform raises for the sessions that it fails on."""


def twenty(session: Session) -> Iterable[OutputEvent]:
    """Return twenty outputs to two topics; none for some sessions, and an error for some, by the end's offset."""
    if session.end.offset % FAILS_EVERY == 0:
        raise RefusedSessionError(f"session {session.key} ends at {session.end.offset}")
    return [] if session.end.offset % _SILENT_EVERY == 0 else _outputs(session, "")


def forgiving(session: Session) -> Iterable[OutputEvent]:
    """Return the same outputs, and no error for any session: what a retry is for."""
    return [] if session.end.offset % _SILENT_EVERY == 0 else _outputs(session, "")


def mended(session: Session) -> Iterable[OutputEvent]:
    """Return the same with other bytes, for every session: what a reissue is for."""
    return _outputs(session, "mended ")


def green(session: Session) -> Iterable[OutputEvent]:
    """Return what `twenty` does to topics of its own: for another pipeline on the same input."""
    if session.end.offset % FAILS_EVERY == 0:
        raise RefusedSessionError(f"session {session.key} ends at {session.end.offset}")
    return [] if session.end.offset % _SILENT_EVERY == 0 else _outputs(session, "", GREEN)


class OddError(KeyboardInterrupt):
    """What no transform should raise. No dead letter holds it."""


def odd(session: Session) -> Iterable[OutputEvent]:
    """Fail in a way that nobody knows."""
    raise OddError(f"the oddness of {session.key}")


def deadly(session: Session) -> Iterable[OutputEvent]:
    """End the process, as native code that crashes does."""
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def _outputs(session: Session, version: str, colour: str = "") -> list[OutputEvent]:
    end = session.end.offset
    prefix = session.start.topic.removesuffix(INPUT) + colour
    content = blake2b(b"".join([event.raw for event in session.events]), digest_size=16).hexdigest()
    stamp = f"{version}{session.key} {session.start.offset}-{end} {content} {session.started_at.isoformat()}".encode()
    pages = prefix + PAGES
    carts = prefix + CARTS
    return [
        *(OutputEvent(pages, b"%02d " % n + stamp) for n in range(_PAGES_PER_SESSION)),
        OutputEvent(carts, {"key": session.key, "events": len(session.events), "content": content}),
        OutputEvent(carts, stamp, key=f"{session.key}/cart".encode()),
        OutputEvent(carts, stamp, headers=[("currency", "EUR"), ("binary", b"\x00\xff")]),
        OutputEvent(carts, stamp, timestamp=session.ended_at),
        OutputEvent(carts, None),
    ]


OWN_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


def tracing(session: Session) -> Iterable[OutputEvent]:
    """Return an output without headers, one with another header, and one with a trace context of its own."""
    pages = session.start.topic.removesuffix(INPUT) + PAGES
    return [
        OutputEvent(pages, b"plain"),
        OutputEvent(pages, b"other", headers=[("currency", "EUR")]),
        OutputEvent(pages, b"own", headers=[("traceparent", OWN_TRACE)]),
    ]


def times(session: Session) -> Iterable[OutputEvent]:
    """Return the times of the session's events."""
    told = " ".join(event.timestamp.isoformat(timespec="milliseconds") for event in session.events)
    return [OutputEvent(session.start.topic.removesuffix(INPUT) + PAGES, told.encode())]


def letters(session: Session) -> Iterable[OutputEvent]:
    """Return one output that names the session's events, such as `anna: A C`, out of their field `letter`."""
    return [_letters(session, session.key)]


def capitals(session: Session) -> Iterable[OutputEvent]:
    """Return the same with the key in capitals, such as `ANNA: A C`."""
    return [_letters(session, session.key.upper())]


def _letters(session: Session, name: str) -> OutputEvent:
    names = " ".join(event.value["letter"] for event in session.events)
    return OutputEvent(session.start.topic.removesuffix(INPUT) + LETTERS, f"{name}: {names}".encode())
