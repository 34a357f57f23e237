"""Dead letters as rows."""

from collections.abc import Sequence

from spark_job.assembly import pgcopy, rows
from spark_job.assembly.transform import failure_text
from spark_job.sessions.result import ClosedSession, DeadLetter


def failed(source: int, closed: ClosedSession, error: BaseException, *, types_in_header: bool) -> rows.Row:
    """A session whose transform raised."""
    events = list(zip(closed.offsets(), closed.timestamps_ms(), closed.raws(), strict=True))
    return letter(
        source,
        DeadLetter(
            closed.start_offset,
            closed.last_offset,
            closed.closing_offset,
            "transform_failed",
            closed.key,
            failure_text(error),
            events,
            closed.n_events,
            closed.types() if types_in_header else None,
        ),
    )


def letter(source: int, found: DeadLetter) -> rows.Row:
    """What the assembler found."""
    return {
        "kind": rows.LETTER,
        "source": source,
        "session_key": found.key,
        "first_offset": found.first_offset,
        "last_offset": found.last_offset,
        "closing_offset": found.closing_offset,
        "events": found.n_events,
        "kept": len(found.events),
        "values": b"".join([pgcopy.nullable(raw) for _, _, raw in found.events]),
        "offsets": pgcopy.int8s([offset for offset, _, _ in found.events]),
        "times": pgcopy.int8s([ts for _, ts, _ in found.events]),
        "types": None if found.types is None else _types(found.types),
        "reason": found.reason,
        "detail": _storable(found.detail),
    }


def _types(types: Sequence[str | None]) -> bytes:
    return b"".join([pgcopy.nullable(None if name is None else _storable(name).encode()) for name in types])


def _storable(text: str) -> str:
    """Text that Postgres takes: neither NUL nor lone surrogates."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
