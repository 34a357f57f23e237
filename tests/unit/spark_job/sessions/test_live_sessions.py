"""Segments against the whole table: any changes and merges leave the same entries, digest, counts and oldest sessions."""

import random
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_job.sessions.errors import DamagedStateError
from spark_job.sessions.state import live_sessions, segments
from spark_job.sessions.state.digests import EntrySum, entry_hashes, text_hashes
from spark_job.sessions.state.live_sessions import LiveSessions
from spark_job.sessions.state.open_sessions import OpenSessions
from spark_job.sessions.state.segments import Segment


def table_of(rng: random.Random, starts: list[int], keys: list[str]) -> OpenSessions:
    """Entries with these starts and keys, ordered by start, the rest of them at random; every fourth is a tombstone."""
    empty, count = OpenSessions.empty(), len(starts)
    buried = [rng.random() < 0.25 for _ in starts]
    columns: dict[str, Any] = {}
    for field in fields(OpenSessions):
        column = getattr(empty, field.name)
        if isinstance(column, np.ndarray):
            columns[field.name] = np.array([rng.randrange(200) for _ in starts]).astype(column.dtype)
    columns |= {
        "start": np.array(starts, np.int64),
        "rows": np.where(buried, 0, 1 + columns["rows"]).astype(np.int64),
        "irregular": np.array(buried, bool),
        "part": np.array([rng.choice([1, 1, 1, 7]) for _ in starts], np.int64),
        "key": pa.array(keys, pa.large_string()),
        "start_hash": pa.array([b"hash" if each else None for each in buried], pa.large_binary()),
        "start_id": pa.array(
            [b"id" if each and at % 2 else None for at, each in enumerate(buried)], pa.large_binary()
        ),
    }
    assert all(len(column) == count for column in columns.values())
    return OpenSessions(**columns)


def check(live: LiveSessions, model: OpenSessions) -> None:
    """It says of all and of each what the table says."""
    assert len(live) == len(model)
    assert live.table.encoded == model.encoded
    assert live.totals.hashes == EntrySum.of(entry_hashes(model, text_hashes(model.key)))
    assert live.totals.events == int(model.rows.sum())
    kept = model.take(np.flatnonzero(~model.is_tombstone))
    keys = sum(len(key.encode()) for key in kept.key.to_pylist())
    assert live.totals.held_bytes == int(kept.n_bytes.sum()) + keys
    buried = np.flatnonzero(model.is_remembered)
    assert live.remembered.encoded == model.take(buried).encoded
    assert live.totals.remembered == len(buried)
    assert live.totals.remembered_key_bytes == sum(
        len(key.encode()) for key in model.take(buried).key.to_pylist()
    )
    starts = model.start.tolist()
    assert live.oldest == min(starts, default=None)
    assert live.oldest_with_events == min(model.start[model.rows > 0].tolist(), default=None)
    assert live.quietest == min(model.max_ts.tolist(), default=None)


def asked_for(live: LiveSessions, model: OpenSessions, keys: list[str], quieter_than: int | None) -> None:
    """Those of some keys, and those that are quiet."""
    found = live.with_keys(pa.array(keys, pa.large_string()), quieter_than)
    wanted = [
        start
        for start, key, ts in zip(
            model.start.tolist(), model.key.to_pylist(), model.max_ts.tolist(), strict=True
        )
        if key in keys or (quieter_than is not None and ts < quieter_than)
    ]
    assert found.start.tolist() == wanted
    assert found.encoded == model.take(np.flatnonzero(np.isin(model.start, wanted))).encoded
    assert live.with_starts(found.start).encoded == found.encoded


def as_kept(live: LiveSessions) -> LiveSessions:
    """As a cache gives it back to a process that knows nothing of it."""
    segments = []
    for layer in live.layers:
        segment = Segment.decoded(memoryview(b"".join(layer.segment.encoded())))
        segment.check()
        assert segment.encoded() == layer.segment.encoded()
        segments.append(segment)
    found = LiveSessions.counted(segments)
    assert found.totals == live.totals
    assert [layer[1:] for layer in found.layers] == [layer[1:] for layer in live.layers]
    return found


def changes(
    rng: random.Random, count: int, most: int
) -> Iterator[tuple[list[int], OpenSessions, OpenSessions]]:
    """(starts that end, new entries, the whole table after): sessions that begin, go on, become tombstones and end."""
    model, offset = OpenSessions.empty(), 0
    for _ in range(count):
        starts = model.start.tolist()
        touched = rng.sample(starts, min(len(starts), rng.choice([0, 1, 2, most])))
        ended = touched[: rng.randrange(len(touched) + 1)]
        if rng.random() < 0.05:
            ended = touched = starts
        going_on = sorted(set(touched) - set(ended))
        key_of = dict(zip(starts, model.key.to_pylist(), strict=True))
        begun = [offset + at for at in range(rng.choice([0, 1, 3, most]))]
        offset += len(begun) + 1
        keys = [key_of[start] for start in going_on] + [f"key {at}" * (at % 3) for at in begun]
        entries = table_of(rng, going_on + begun, keys)
        model = model.changed(~np.isin(model.start, touched), entries)
        yield ended, entries, model


@pytest.mark.parametrize("seed", range(12))
def test_any_changes_leave_what_the_whole_table_has(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(live_sessions, "_LOOKED_AT", 2)
    if seed % 2:
        monkeypatch.setattr(live_sessions, "_MOST_SEGMENTS", 3)
        monkeypatch.setattr(live_sessions, "_MERGED_SEGMENTS", 2)
    live, most = LiveSessions(), 0
    for ended, entries, model in changes(rng, 80, 1 + seed):
        live = live.changed(np.array(ended, np.int64), entries)
        check(live, model)
        check(LiveSessions.of(model), model)
        keys = rng.sample(model.key.to_pylist(), min(len(model), 3))
        asked_for(live, model, [*keys, "of nobody"], rng.choice([None, 0, 20, 100, 1000]))
        most = max(most, len(live.layers))
        if rng.random() < 0.3:
            live = as_kept(live)
    assert most > 1


def test_segments_stay_few_and_entries_are_copied_a_few_times_however_many_are_open() -> None:
    rng = random.Random(0)
    live, copied, written = (
        LiveSessions.of(table_of(rng, list(range(20_000)), [f"{n}" for n in range(20_000)])),
        0,
        0,
    )
    for number in range(200):
        begun = [20_000 + 20 * number + at for at in range(20)]
        starts = sorted(rng.sample(range(20_000), 20)) + begun
        before = {id(layer.segment) for layer in live.layers}
        live = live.changed(np.zeros(0, np.int64), table_of(rng, starts, [f"{start}" for start in starts]))
        written += len(starts)
        copied += sum(len(layer.segment) for layer in live.layers if id(layer.segment) not in before)
        assert len(live.layers) <= live_sessions._MOST_SEGMENTS
    assert copied < 5 * written


def test_what_changes_again_and_again_lies_in_one_segment() -> None:
    rng = random.Random(0)
    starts = list(range(50))
    live = LiveSessions()
    for _ in range(20):
        live = live.changed(np.zeros(0, np.int64), table_of(rng, starts, [f"{start}" for start in starts]))
        assert len(live.layers) == 1


def test_nobody_is_asked_for_all_entries_by_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the table is put together nor a segment of old ones read through, where nothing is merged."""
    rng = random.Random(0)
    live = LiveSessions.of(table_of(rng, list(range(1000)), [f"{n}" for n in range(1000)]))
    taken = list[int]()
    take = OpenSessions.take

    def counting(self: OpenSessions, places: Any) -> OpenSessions:
        taken.append(len(places))
        return take(self, places)

    monkeypatch.setattr(OpenSessions, "take", counting)
    for number in range(5):
        starts = [10 * number, 10 * number + 1, 1000 + number]
        live.with_keys(pa.array([f"{start}" for start in starts], pa.large_string()), 1)
        live = live.changed(
            np.array([10 * number + 2]), table_of(rng, starts, [f"{start}" for start in starts])
        )
        assert len(live.layers) == 2 + number
    assert sum(taken) < 100


TABLE = table_of(random.Random(1), [3, 5, 8, 13], ["a", "b", "", "ü"])
OTHER = table_of(random.Random(2), [21, 34], ["c", "d"])


def summed(*tables: OpenSessions) -> EntrySum:
    total = EntrySum()
    for table in tables:
        total = total.plus(EntrySum.of(entry_hashes(table, text_hashes(table.key))))
    return total


def test_what_is_added_and_taken_away_again_leaves_no_trace() -> None:
    both = summed(TABLE, OTHER)
    assert both == summed(OTHER, TABLE)
    assert both.minus(summed(OTHER)) == summed(TABLE)
    assert both.minus(both) == EntrySum()
    assert EntrySum().digest(b"") == ""


def test_the_digest_depends_on_each_column_of_each_entry_and_on_the_clock() -> None:
    digests = {summed(TABLE).digest(b""), summed(TABLE).digest(b"clock"), summed(OTHER).digest(b"")}
    for at in range(len(TABLE)):
        for field in fields(OpenSessions):
            column = getattr(TABLE, field.name)
            if isinstance(column, pa.Array):
                values = column.to_pylist()
                values[at] = "?" if pa.types.is_large_string(column.type) else b"?"
                changed: Any = pa.array(values, column.type)
            else:
                changed = column.copy()
                changed[at] = not changed[at] if column.dtype == bool else changed[at] + 1
            digests.add(summed(replace(TABLE, **{field.name: changed})).digest(b""))
    assert len(digests) == 3 + len(TABLE) * len(fields(OpenSessions))
    assert {len(each) for each in digests} == {34}


@settings(max_examples=200, derandomize=True)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=4, max_size=4), st.integers(0, 63))
def test_a_bit_that_wanders_from_one_entry_or_column_to_another_is_seen(values: list[int], bit: int) -> None:
    """What a plain sum of numbers would not see."""
    column = np.array(values, np.int64)
    one = replace(TABLE, last=column, max_ts=column)
    flip = np.int64(1 << bit if bit < 63 else -(2**63))
    moved = column.copy()
    moved[0] ^= flip
    moved[1] ^= flip
    assert summed(replace(one, last=moved)) != summed(one)
    assert summed(replace(one, last=moved)) != summed(replace(one, max_ts=moved))


def test_an_empty_text_is_another_one_than_none() -> None:
    """A tombstone of a session that began without a start event has an empty hash, an open session none."""
    column = TABLE.start_hash.to_pylist()
    at = column.index(None)
    empty = replace(TABLE, start_hash=pa.array([*column[:at], b"", *column[at + 1 :]], pa.large_binary()))
    assert summed(empty) != summed(TABLE)
    none, one = (pa.array([each], pa.large_binary()) for each in (None, b""))
    assert (text_hashes(none) != text_hashes(one)).all()


def test_a_sum_proves_nothing_where_the_hashes_are_not_those_of_the_entries() -> None:
    segment = Segment.of(TABLE, np.array([1, 2]))
    segment.check()
    others = Segment.of(replace(TABLE, last=TABLE.last + 1), segment.ended)
    for changed in (replace(segment, entries=others.entries), replace(segment, hashes=others.hashes)):
        with pytest.raises(DamagedStateError):
            LiveSessions.counted([changed])


def test_keys_that_share_a_hash_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for as often as there are such keys, a thousand would find the sessions of a thousand a million times."""
    for module in (live_sessions, segments):
        monkeypatch.setattr(module, "text_hashes", lambda keys: np.zeros((len(keys), 2), np.uint64))
    asked: list[int] = []
    with_keys = Segment.with_keys

    def counted(of: Segment, hashes: Any) -> Any:
        asked.append(len(hashes))
        return with_keys(of, hashes)

    monkeypatch.setattr(Segment, "with_keys", counted)
    keys = [f"k{number}" for number in range(100)]
    model = table_of(random.Random(1), list(range(100)), keys)
    asked_for(LiveSessions.of(model), model, keys, None)
    assert asked == [1]
