"""Turn the events that letters keep into sessions. Runs no transform; only a look-up in `schemas` may ask a server.

The job's own reader reads the events, with the assembly rules of their generation. Events that form a session with a start and an end are
whole; a missing event is never guessed. If a schema could not be used, each event that needs it is a letter `malformed`: such letters are
read again together.
"""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

import pyarrow as pa

from service.formats.writer import NO_SCHEMAS, Schemas
from spark_job.api import EndedBy
from spark_job.assembly.letters import part_of
from spark_job.dead_letters.store import StoredLetter
from spark_job.sessions.assembler import assemble
from spark_job.sessions.events import END, ENTRY, START, Events
from spark_job.sessions.parsing.formats import has_schemas
from spark_job.sessions.parsing.records import read_records
from spark_job.sessions.result import ClosedSession, Unended
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.open_state import OpenState

_UNENDED: dict[str, EndedBy] = {"restarted": "restart", "timed_out": "timeout"}
"""What ended the session of a letter that has no end event, by the letter's reason."""
_MALFORMED = "a malformed record is no session. Fix its producer, then `spark-job dead-letters discard`"
_HEADER = "a malformed record is no session, and the header with its schema's id is not kept. Discard with `spark-job dead-letters discard`"
_PART = (
    "it can be read now, but is no part of a session that is whole among the letters that are retried together. Retry all of them; "
    "where the session's other events were read, `spark-job savepoint restore --policy reissue` reads the input again"
)
_NO_START = (
    "without [session] start nothing tells whether it is a whole session. Fix its producer, then `spark-job dead-letters discard`; "
    "`spark-job savepoint restore --policy reissue` reads the input again"
)
_PART_UNKNOWN = (
    "its long traceback, which an earlier release wrote, may begin with a text of its events: nothing tells whether it is a part of a "
    "session. `spark-job savepoint restore --policy reissue` reads the input again"
)
_NEVER = {
    "malformed": _MALFORMED,
    "no_start": "an event without its session's start is no session. Discard it with `spark-job dead-letters discard`",
}


class NotWholeError(Exception):
    """The kept events are not a session; the message gives the reason."""


def session_of(
    letter: StoredLetter,
    assembly: AssemblySettings,
    schemas: Schemas = NO_SCHEMAS,
    *,
    incomplete: bool = False,
) -> ClosedSession:
    """Return the letter's session. `assembly`: of the letter's generation; `schemas`: if its format has any.

    `incomplete` also accepts a session without an end that timed out or was restarted: it ends at its last kept event.
    Raises NotWholeError.
    """
    if letter.reason in _NEVER:
        raise NotWholeError(_NEVER[letter.reason])
    kept = len(letter.event_offsets)
    if kept < letter.event_count:
        raise NotWholeError(
            f"only {kept} of its {letter.event_count} events are kept: the session grew over [session] max_events or max_bytes"
        )
    if letter.session_key is None:
        raise NotWholeError("it has no session key")
    if assembly.type_path is None and letter.event_types is None:
        raise NotWholeError(
            "its events' types were in record headers, which letters of schema 0001 did not keep"
        )
    # A kept event has its schema's id in front of the value, even if Kafka had the id in a header.
    records = read_records(_table(letter), replace(assembly, schema_id_in_header=False), schemas)
    if records.letters:
        raise NotWholeError(
            f"its event at offset {records.letters[0].first_offset} is malformed: {records.letters[0].detail}"
        )
    try:
        part, part_ended_by = part_of(letter.reason, letter.detail)
    except ValueError:
        raise NotWholeError(_PART_UNKNOWN) from None
    ended_by = _ended_by(letter, records.events, assembly, part_ended_by, incomplete=incomplete)
    unended = None if ended_by == "end" else Unended(ended_by, letter.last_offset, letter.closing_offset)
    return ClosedSession(letter.session_key, records.events, 0, kept, assembly.names, unended, part)


def events_of(letters: Sequence[StoredLetter]) -> pa.Table:
    """Return the events of some letters of one partition, as the assembler's reader takes them."""
    return pa.concat_tables([_table(letter) for letter in sorted(letters, key=attrgetter("first_offset"))])


def sessions_of(
    letters: Sequence[StoredLetter], assembly: AssemblySettings, schemas: Schemas = NO_SCHEMAS
) -> tuple[list[tuple[ClosedSession, list[StoredLetter]]], dict[int, str]]:
    """Return the sessions whose events are letters `malformed` of one partition, with these letters, and {id: why} of the other letters.

    `assembly`, `schemas`: as for `session_of`.
    """
    if assembly.schema_id_in_header:
        return [], {letter.dead_letter_id: _HEADER for letter in letters}
    if not assembly.start:
        return [], {letter.dead_letter_id: _NO_START for letter in letters}
    by_offset = {letter.first_offset: letter for letter in letters}
    found = assemble(OpenState.empty(), events_of(letters), replace(assembly, clock_records=False), schemas)
    sessions = [
        (closed, [by_offset[offset] for offset in closed.offsets()])
        for closed in found.closed
        if closed.ended_by == "end"
    ]
    unread = {each.first_offset: each.detail for each in found.letters if each.reason == "malformed"}
    refused = {
        letter.dead_letter_id: _still_malformed(unread[offset], assembly) if offset in unread else _PART
        for offset, letter in by_offset.items()
    }
    for _, mine in sessions:
        for letter in mine:
            del refused[letter.dead_letter_id]
    return sessions, refused


def _still_malformed(detail: str, assembly: AssemblySettings) -> str:
    return f"{_MALFORMED} ({detail})" if has_schemas(assembly.format) else _MALFORMED


def _ended_by(
    letter: StoredLetter,
    events: Events,
    assembly: AssemblySettings,
    part_ended_by: EndedBy,
    *,
    incomplete: bool,
) -> EndedBy:
    """Check that the events are a session, and return what ended it; `part_ended_by`, if only the letter tells."""
    kinds = events.kind.tolist()
    types = events.types(0, len(events), assembly.names)
    has_start = bool(assembly.start)
    if (has_start and kinds[0] != START) or letter.event_offsets[0] != letter.first_offset:
        raise NotWholeError(f"its first kept event is {types[0]!r}, not the session's start")
    for at in range(has_start, len(kinds) - 1):
        if kinds[at] != ENTRY:
            raise NotWholeError(
                f"its event at offset {letter.event_offsets[at]} is {types[at]!r} within a session"
            )
    if kinds[-1] == END and len(kinds) > has_start:
        return "end"
    if len(kinds) > 1 and kinds[-1] != ENTRY:
        raise NotWholeError(f"its last event, at offset {letter.event_offsets[-1]}, is a second start")
    if letter.reason == "transform_failed" and assembly.on_timeout == "emit":
        return part_ended_by
    if letter.reason not in _UNENDED:
        raise NotWholeError("its end event is missing")
    if not incomplete:
        raise NotWholeError(
            "it has no end event; `--incomplete` transforms its events as a session that ends at the last of them"
        )
    return _UNENDED[letter.reason]


def _table(letter: StoredLetter) -> pa.Table:
    """Return the events as the assembler's reader takes them."""
    number = len(letter.event_offsets)
    columns = {
        "offset": pa.array(letter.event_offsets, pa.int64()),
        "ts": pa.array(letter.event_times_ms, pa.int64()),
        "key": pa.array([_encoded(letter.session_key)] * number, pa.binary()),
        "value": pa.array(letter.event_values, pa.binary()),
    }
    if letter.event_types is not None:
        columns["type"] = pa.array([_encoded(each) for each in letter.event_types], pa.binary())
    return pa.table(columns)


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
