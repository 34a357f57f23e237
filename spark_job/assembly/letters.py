"""Dead letters as rows. The letter of a record that cannot be decoded is made in sessions/parsing/records.py (`_malformed`)."""

import re
from collections.abc import Sequence
from typing import cast

from spark_job.api import EndedBy
from spark_job.assembly import rows
from spark_job.outputs import pgcopy
from spark_job.outputs.transform_failures import CUT, failure_text
from spark_job.sessions.result import ClosedSession, DeadLetter

_OF_FAILED_PART = re.compile(r"part ([1-9][0-9]{0,8}) of its session, ended by (end|timeout|limit)\n")
_OF_UNENDED_PART = re.compile(r"part ([1-9][0-9]{0,8}) of its session: ")
"""Prefixes of a letter's detail: of `_of_part`, and of sessions/event_rules.py (`_letter`). What follows may quote events."""
_ONCE_CUT_TO = 8_000
"""Before tracebacks were cut with a mark, one of this length could begin with a text that the exception quoted."""


def part_of(reason: str, detail: str) -> tuple[int, EndedBy]:
    """Return a letter's part number and, if the transform failed and the last event is no end, what ended the part: only the letter tells.

    Raises ValueError if the beginning of the detail may come from the events, not from the job.
    """
    if reason != "transform_failed":
        found = _OF_UNENDED_PART.match(detail)
        return (1 if found is None else int(found[1])), "timeout"
    found = _OF_FAILED_PART.match(detail)
    if found is None:
        return 1, "timeout"
    if len(detail) >= _ONCE_CUT_TO and not detail.startswith(CUT, found.end()):
        raise ValueError("the beginning of a long detail may be a text of the events")
    return int(found[1]), cast("EndedBy", found[2])


def failed(source: int, closed: ClosedSession, error: BaseException, *, types_in_header: bool) -> rows.Row:
    """Return the letter of a session whose transform raised."""
    events = list(zip(closed.offsets(), closed.timestamps_ms(), closed.raws(), strict=True))
    return letter(
        source,
        DeadLetter(
            closed.start_offset,
            closed.last_offset,
            closed.closing_offset,
            "transform_failed",
            closed.key,
            _of_part(closed) + failure_text(error),
            events,
            closed.n_events,
            closed.types() if types_in_header else None,
        ),
    )


def _of_part(closed: ClosedSession) -> str:
    is_whole = closed.part == 1 and closed.ended_by != "limit"
    return "" if is_whole else f"part {closed.part} of its session, ended by {closed.ended_by}\n"


def letter(source: int, found: DeadLetter) -> rows.Row:
    """Return a letter of the assembler's as a row."""
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
    """Return the text as Postgres accepts it: without NUL and lone surrogates."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
