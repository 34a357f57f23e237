"""Run the assembler over records and put what comes out in the reference model's terms."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from spark_job.sessions.assembler import assemble
from spark_job.sessions.result import AssembledSessions
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.open_state import OpenState
from tests.support.reference.message import as_bytes
from tests.support.reference.model import (
    Expected,
    ExpectedEvent,
    ExpectedLetter,
    ExpectedSession,
    Record,
    text_of,
)


@dataclass
class Outcome:
    """Comparable with another Outcome: the model's or the assembler's."""

    sessions: list[ExpectedSession] = field(default_factory=list)
    letters: list[ExpectedLetter] = field(default_factory=list)
    open: list[tuple[int, str, int, int, int, tuple[tuple[int, int, bytes], ...], bool, int, int]] = field(
        default_factory=list
    )
    """(source, key, start, last, latest time, events, tombstone, repeated, part)."""
    duplicates: int = 0
    swallowed: int = 0

    def sort(self) -> "Outcome":
        """By source and closing position, so that batches play no part."""
        self.sessions.sort(key=lambda session: (session.source, session.end_offset))
        self.letters.sort(
            key=lambda letter: (letter.source, letter.closing_offset, letter.first_offset, letter.reason)
        )
        self.open.sort()
        return self


def table(
    records: Sequence[Record], settings: AssemblySettings, event_ids_in_header: bool = False
) -> pa.Table:
    """Records of one source as the job gives them to the assembler."""
    columns = {
        "offset": pa.array([record.offset for record in records], pa.int64()),
        "ts": pa.array([record.ts for record in records], pa.int64()),
        "value": pa.array([record.value for record in records], pa.binary()),
        "by_broker": pa.array([int(record.by_broker) for record in records], pa.int8()),
    }
    if settings.key_path is None:
        columns["key"] = pa.array([as_bytes(record.key) for record in records], pa.binary())
    if settings.type_path is None:
        columns["type"] = pa.array([as_bytes(record.type) for record in records], pa.binary())
    if settings.clock_records:
        columns["clock"] = pa.array([record.clock for record in records], pa.binary())
    if event_ids_in_header:
        columns["event_id"] = pa.array([as_bytes(record.event_id) for record in records], pa.binary())
    return pa.table(columns)


def assembled(
    batches: Iterable[Sequence[Record]], settings: AssemblySettings, event_ids_in_header: bool = False
) -> Outcome:
    """The outcome of batch after batch, the open sessions of each source carried on."""
    states: dict[int, OpenState] = {}
    outcome = Outcome()
    types: dict[tuple[int, int], str | None] = {}
    for batch in batches:
        types |= {(record.source, record.offset): text_of(record.type) for record in batch}
        for source in sorted({record.source for record in batch}):
            records = [record for record in batch if record.source == source]
            new = table(records, settings, event_ids_in_header)
            result = assemble(states.get(source, OpenState.empty()), new, settings)
            states[source] = result.state
            add(outcome, source, result)
            check_types(result, source, types if settings.type_path is None else None)
    for source, state in states.items():
        add_open(outcome, source, state)
    return outcome.sort()


def expected_outcome(expected: Expected) -> Outcome:
    """The model's answer, comparable."""
    opened = [
        (
            session.source,
            session.key,
            session.start_offset,
            session.last_offset,
            session.latest,
            tuple((event.offset, event.ts, event.raw) for event in session.events),
            session.tombstone,
            session.repeated,
            session.part,
        )
        for session in expected.open
    ]
    return Outcome(
        expected.sessions, expected.letters, opened, expected.duplicates, expected.swallowed
    ).sort()


def add(outcome: Outcome, source: int, result: AssembledSessions) -> None:
    """Collect one call's sessions, letters and counts."""
    for session in result.closed:
        columns = zip(
            session.offsets(), session.timestamps_ms(), session.types(), session.raws(), strict=True
        )
        events = tuple(ExpectedEvent(*event) for event in columns)
        assert (session.started_ms, session.ended_ms) == (events[0].ts, events[-1].ts)
        offsets = (session.start_offset, session.end_offset, session.last_offset, session.closing_offset)
        outcome.sessions.append(
            ExpectedSession(source, session.key, *offsets, session.ended_by, session.part, events)
        )
    for letter in result.letters:
        assert letter.detail
        outcome.letters.append(
            ExpectedLetter(
                source,
                letter.first_offset,
                letter.last_offset,
                letter.closing_offset,
                letter.reason,
                letter.key,
                tuple(letter.events),
                letter.n_events,
            )
        )
    outcome.duplicates += result.counts.duplicates
    outcome.swallowed += result.counts.swallowed


def add_open(outcome: Outcome, source: int, state: OpenState) -> None:
    """Collect what is open; fail unless table, chunks and safe offset agree."""
    sessions = state.sessions
    with_events = np.flatnonzero(sessions.rows > 0)
    held = state.events_of(sessions.start[with_events])
    assert held.start.tolist() == sessions.start[with_events].tolist()
    assert sessions.n_bytes.sum() == held.events.sizes().sum()
    assert state.safe_offset == (int(held.start.min()) if len(with_events) else None)
    bounds = dict(
        zip(held.start.tolist(), zip(held.first.tolist(), held.first[1:].tolist(), strict=False), strict=True)
    )
    for at in range(len(sessions)):
        start = int(sessions.start[at])
        begin, end = bounds.get(start, (0, 0))
        columns = (
            held.events.offset[begin:end].tolist(),
            held.events.ts[begin:end].tolist(),
            held.events.raws(begin, end),
        )
        outcome.open.append(
            (
                source,
                sessions.key[at].as_py(),
                start,
                int(sessions.last[at]),
                int(sessions.max_ts[at]),
                tuple(zip(*columns, strict=True)),
                bool(sessions.is_tombstone[at]),
                int(sessions.repeated[at]),
                int(sessions.part[at]),
            )
        )


def check_types(
    result: AssembledSessions, source: int, in_headers: Mapping[tuple[int, int], str | None] | None
) -> None:
    """Letters keep the types that only a header told. `in_headers`: by (source, offset); None where the values tell them."""
    for letter in result.letters:
        if in_headers is None:
            assert letter.types is None
        else:
            assert letter.types == [in_headers[source, offset] for offset, _, _ in letter.events]
