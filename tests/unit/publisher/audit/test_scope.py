"""Which batches an audit looks at, and how its files survive a kill."""

import stat
from dataclasses import replace
from pathlib import Path
from struct import Struct

import pytest

from contract.cursor import Cursor
from publisher.audit.readback.spill import Spill
from publisher.audit.readback.state import forget
from publisher.audit.scope import AuditedRange, RecordedResume, Scope, kept_ranges
from service.errors import OutboxError


def scope(kept: list[tuple[int, int]], epochs: list[tuple[int, int, int]]) -> Scope:
    """A scope of these runs."""
    resumes = [RecordedResume(1, 0, 3, Cursor(2, "k"), Cursor(1), "asked")]
    return Scope(1, 1, kept[0][0], kept[-1][1], kept, True, epochs, {(1, 0): Cursor(5, "k")}, resumes)


def test_what_retention_dropped_in_the_middle_is_left_out() -> None:
    assert kept_ranges([(0, 9_999), (10_000, 19_999), (30_000, 39_999), (40_000, 49_999)], 1, 34_567) == [
        (1, 19_999),
        (30_000, 34_567),
    ]
    assert kept_ranges([(0, 9_999), (10_000, 429_999)], 15_000, 15_010) == [(15_000, 15_010)]
    assert kept_ranges([(10_000, 19_999)], 1, 9_000) == []
    holed = scope([(1, 19_999), (30_000, 34_567)], [(1, 1, 2)])
    assert (holed.complete, holed.last_kept_from) == (False, 30_000)
    assert [holed.holds(5, 19_999), holed.holds(19_999, 30_000)] == [True, False]
    assert [holed.reads(batch) for batch in (5, 25_000, 34_567, 34_568)] == [True, False, True, True]
    assert not replace(holed, to_end=False).reads(34_568)


def test_every_lane_of_every_epoch_that_a_range_touches_is_read() -> None:
    epochs = [(1, 1, 4), (2, 10, 16), (3, 20, 2)]
    found = scope([(1, 30)], epochs)
    for first, last, lanes in [(1, 9, 4), (9, 10, 16), (19, 20, 16), (20, 30, 2), (1, 30, 16)]:
        assert found.lanes_of(AuditedRange(first, last, 0)) == range(lanes)
    assert [found.epoch_of(batch) for batch in (0, 1, 9, 10, 20, 99)] == [None, 1, 1, 2, 3, 3]


def test_a_scope_is_the_same_after_it_was_kept() -> None:
    found = scope([(1, 30)], [(1, 1, 4)])
    assert Scope.from_json(found.as_json()) == found


def test_a_row_may_be_there_once_for_each_time_that_its_lane_came_by() -> None:
    """Sent up to 9, set back to 3, sent up to 6, led on to 12, and back to 8: between two resumes a lane only goes forward."""
    moves = [(9, 3), (6, 12), (20, 8)]
    resumes = [
        RecordedResume(1, 0, n, Cursor(after), Cursor(to), "")
        for n, (after, to) in zip((3, 5, 9), moves, strict=True)
    ]
    found = replace(scope([(1, 30)], [(1, 1, 2)]), resumes=resumes)
    of_batch = {batch: found.copies(1, 0, Cursor(batch, "k")) for batch in (3, 4, 6, 7, 9, 10, 13, 20, 21)}
    assert of_batch == {3: 1, 4: 2, 6: 2, 7: 1, 9: 2, 10: 1, 13: 2, 20: 2, 21: 1}
    assert found.copies(1, 1, Cursor(4, "k")) == 1, "another lane"
    parked_after = (2, 3, 4, 5, 9)
    assert [found.copies(1, 0, Cursor(4, "k"), seq) for seq in parked_after] == [0, 1, 1, 2, 2]


def test_what_an_audit_forgets_is_its_own(tmp_path: Path) -> None:
    Spill(tmp_path, "order", Struct("<i"), 2).restore([])
    (tmp_path / "order-2026.csv").write_text("mine", "utf-8")
    (tmp_path / "state.json").write_text("{}", "utf-8")
    forget(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["order-2026.csv"]


def test_a_spill_begins_again_at_what_was_written_down(tmp_path: Path) -> None:
    record = Struct("<i")
    spill = Spill(tmp_path, "x", record, 3)
    spill.restore([])
    for n in range(9):
        spill.append(n % 3, record.pack(n))
    sizes = spill.flush()
    spill.append(0, record.pack(99))
    spill.flush()
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    again = Spill(tmp_path, "x", record, 3)
    again.restore(sizes)
    assert list(again.read(0)) == [(0,), (3,), (6,)]
    (tmp_path / "x-00001").write_bytes(b"")
    with pytest.raises(OutboxError, match="is damaged"):
        Spill(tmp_path, "x", record, 3).restore(sizes)
