"""Run the assembler over records and put what comes out in the reference model's terms."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from spark_job.sessions import Assembled, AssemblySettings, assemble
from spark_job.sessions.state import OpenState
from tests.reference.model import (
    Expected,
    ExpectedEvent,
    ExpectedLetter,
    ExpectedSession,
    Record,
    one_bucket,
    parse,
)


@dataclass
class Outcome:
    """Comparable with another Outcome: the model's or the assembler's."""

    sessions: list[ExpectedSession] = field(default_factory=list)
    letters: list[ExpectedLetter] = field(default_factory=list)
    open: list[tuple[int, str, int, int, int, tuple[tuple[int, int, bytes], ...], bool]] = field(
        default_factory=list
    )
    """(source, key, start, last, latest time, events, tombstone)."""
    duplicates: int = 0
    swallowed: int = 0

    def sort(self) -> "Outcome":
        """By source and closing position, so that buckets and batches play no part."""
        self.sessions.sort(key=lambda session: (session.source, session.end_offset))
        self.letters.sort(
            key=lambda letter: (letter.source, letter.closing_offset, letter.first_offset, letter.reason)
        )
        self.open.sort()
        return self


def table(
    records: Sequence[Record], settings: AssemblySettings, event_ids_in_header: bool = False
) -> pa.Table:
    """The records as the job gives them to the assembler."""
    keys, raw_keys, values, raws = [], [], [], []
    for record in records:
        key = record.key
        if settings.key_path is not None:
            parsed = parse(record, settings, event_ids_in_header)
            key = None if parsed is None else parsed.key
        text, raw = _text(key.encode() if isinstance(key, str) else key)
        keys.append(text)
        raw_keys.append(raw)
        text, raw = _text(record.value)
        values.append(text)
        raws.append(raw)
    columns = {
        "source": pa.array([record.source for record in records], pa.int32()),
        "offset": pa.array([record.offset for record in records], pa.int64()),
        "ts": pa.array([record.ts for record in records], pa.int64()),
        "key": pa.array(keys, pa.string()),
        "value": pa.array(values, pa.string()),
        "raw": pa.array(raws, pa.binary()),
        "raw_key": pa.array(raw_keys, pa.binary()),
    }
    if settings.type_path is None:
        columns["type"] = pa.array([record.type for record in records], pa.string())
    if event_ids_in_header:
        columns["event_id"] = pa.array([record.event_id for record in records], pa.string())
    return pa.table(columns)


def assembled(
    batches: Iterable[Sequence[Record]],
    settings: AssemblySettings,
    bucket_of: Callable[[str], int] = one_bucket,
    event_ids_in_header: bool = False,
    shuffle: random.Random | None = None,
) -> Outcome:
    """The outcome of batch after batch, the state of each bucket carried on as bytes.

    With `shuffle` the records of a batch arrive in any order and any chunking.
    """
    states: dict[int, bytes | None] = {}
    outcome = Outcome()
    types: dict[tuple[int, int], str | None] = {}
    for batch in batches:
        types |= {(record.source, record.offset): record.type for record in batch}
        by_bucket: dict[int, list[Record]] = {}
        for record in batch:
            parsed = parse(record, settings, event_ids_in_header)
            by_bucket.setdefault(0 if parsed is None else bucket_of(parsed.key), []).append(record)
        for bucket, records in by_bucket.items():
            if shuffle is not None:
                shuffle.shuffle(records)
            new = table(records, settings, event_ids_in_header)
            if shuffle is not None:
                cut = shuffle.randint(0, len(records))
                new = pa.concat_tables([new.slice(0, cut), new.slice(cut)])
            result = assemble(states.get(bucket), new, settings)
            states[bucket] = result.open_state
            add(outcome, result)
            check_summary(result)
            check_types(result, types if settings.type_path is None else None)
    for state in states.values():
        add_open(outcome, state)
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
        )
        for session in expected.open
    ]
    return Outcome(
        expected.sessions, expected.letters, opened, expected.duplicates, expected.swallowed
    ).sort()


def add(outcome: Outcome, result: Assembled) -> None:
    """Collect one call's sessions, letters and counts."""
    for session in result.closed:
        columns = zip(
            session.offsets(), session.timestamps_ms(), session.types(), session.raws(), strict=True
        )
        events = tuple(ExpectedEvent(*event) for event in columns)
        assert (session.started_ms, session.ended_ms) == (events[0].ts, events[-1].ts)
        outcome.sessions.append(
            ExpectedSession(session.source, session.key, session.start_offset, session.end_offset, events)
        )
    for letter in result.letters:
        assert letter.detail
        outcome.letters.append(
            ExpectedLetter(
                letter.source,
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


def add_open(outcome: Outcome, blob: bytes | None) -> None:
    """Collect what a bucket's state holds."""
    state = OpenState.from_bytes(blob)
    row = 0
    for at in range(len(state.source)):
        end = row + int(state.rows[at])
        columns = (
            state.offset[row:end].tolist(),
            state.ts[row:end].tolist(),
            state.payload[row:end].to_pylist(),
        )
        outcome.open.append(
            (
                int(state.source[at]),
                state.key[at].as_py(),
                int(state.start[at]),
                int(state.last[at]),
                int(state.max_ts[at]),
                tuple(zip(*columns, strict=True)),
                state.start_hash[at].is_valid,
            )
        )
        row = end


def check_summary(result: Assembled) -> None:
    """The summary says what the state holds."""
    held = Outcome()
    add_open(held, result.open_state)
    oldest: dict[int, int] = {}
    for source, _, start, *_ in held.open:
        oldest[source] = min(start, oldest.get(source, start))
    summary = result.summary
    assert summary.oldest_open == oldest
    assert summary.open_sessions == len(held.open)
    assert summary.open_events == sum(len(events) for *_, events, _ in held.open)
    assert summary.open_bytes == sum(len(raw) for *_, events, _ in held.open for _, _, raw in events)
    assert summary.state_bytes == len(result.open_state or b"")


def check_types(result: Assembled, in_headers: Mapping[tuple[int, int], str | None] | None) -> None:
    """Letters keep the types that only a header told. `in_headers`: by (source, offset); None where the values tell them."""
    for letter in result.letters:
        if in_headers is None:
            assert letter.types is None
        else:
            assert letter.types == [in_headers[letter.source, offset] for offset, _, _ in letter.events]


def _text(value: bytes | None) -> tuple[str | None, bytes | None]:
    """(text, None), or (None, bytes) where they are not UTF-8."""
    if value is None:
        return None, None
    try:
        return value.decode(), None
    except UnicodeDecodeError:
        return None, value
