"""From the events that a letter keeps to the session that they are. Pure: no server is asked, no transform is run.

The events go through the job's own reader with the settings of the generation that judged them. Those that make a session with a start
and an end are whole; nothing is guessed where one is missing.
"""

import pyarrow as pa

from spark_job.dead_letters.store import StoredLetter
from spark_job.sessions import AssemblySettings, ClosedSession
from spark_job.sessions.records import Records, read_records
from spark_job.sessions.store import END, ENTRY, START, EventStore

_UNENDED = ("restarted", "timed_out")
_NEVER = {
    "malformed": "a malformed record is no session. Mend its producer, then `spark-job dead-letters discard`",
    "no_start": "an event without its session's start is no session. `spark-job dead-letters discard` puts it away",
}


class NotWholeError(Exception):
    """The kept events are no session; the message says why."""


def session_of(
    letter: StoredLetter, assembly: AssemblySettings, *, incomplete: bool = False
) -> ClosedSession:
    """Return the letter's session; its `source` is 0. `assembly`: of the letter's generation.

    `incomplete` takes what has no end as well, where the session timed out or was restarted: it ends at its last kept event.
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
    records = read_records(_table(letter), assembly)
    if records.letters:
        raise NotWholeError(
            f"its event at offset {records.letters[0].first_offset} is malformed: {records.letters[0].detail}"
        )
    _check_shape(letter, records, assembly, incomplete=incomplete)
    store = EventStore(
        records.offset, records.ts, records.kind, records.payload, records.event_id, assembly.names
    )
    times = records.ts.tolist()
    return ClosedSession(
        letter.session_key,
        0,
        letter.event_offsets[0],
        letter.event_offsets[-1],
        times[0],
        times[-1],
        store,
        pa.array(range(kept), pa.int64()).to_numpy(),
    )


def _check_shape(
    letter: StoredLetter, records: Records, assembly: AssemblySettings, *, incomplete: bool
) -> None:
    kinds = records.kind.tolist()
    if kinds[0] != START or letter.event_offsets[0] != letter.first_offset:
        raise NotWholeError(f"its first kept event is {assembly.names[kinds[0]]!r}, not the session's start")
    for at, kind in enumerate(kinds[1:-1], 1):
        if kind != ENTRY:
            raise NotWholeError(
                f"its event at offset {letter.event_offsets[at]} is {assembly.names[kind]!r} within a session"
            )
    if kinds[-1] == END and len(kinds) > 1:
        return
    if len(kinds) > 1 and kinds[-1] != ENTRY:
        raise NotWholeError(f"its last event, at offset {letter.event_offsets[-1]}, is a second start")
    if letter.reason not in _UNENDED:
        raise NotWholeError("its end event is missing")
    if not incomplete:
        raise NotWholeError(
            "its end event never came; `--incomplete` transforms the events that did, as a session that ends at the last of them"
        )


def _table(letter: StoredLetter) -> pa.Table:
    """The events as the assembler's reader takes them."""
    number = len(letter.event_offsets)
    columns = {
        "source": pa.array([0] * number, pa.int32()),
        "offset": pa.array(letter.event_offsets, pa.int64()),
        "ts": pa.array(letter.event_times_ms, pa.int64()),
        "key": pa.array([letter.session_key] * number, pa.string()),
        "value": pa.array(letter.event_values, pa.binary()),
        "raw": pa.nulls(number, pa.binary()),
        "raw_key": pa.nulls(number, pa.binary()),
    }
    if letter.event_types is not None:
        columns["type"] = pa.array(letter.event_types, pa.string())
    return pa.table(columns)
