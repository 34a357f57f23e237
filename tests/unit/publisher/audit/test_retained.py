"""What an audit knows of an output that the retention of its topic may have deleted."""

from typing import Any

import pytest

from publisher.audit import expected
from publisher.audit.digest import Mark
from publisher.audit.expected import Bounds, ExpectedReader, Passed
from publisher.outbox.cursor import Cursor


def reader(lows: dict[str, int]) -> Any:
    """A reader of an outbox whose topic `t` has these low watermarks."""
    found = ExpectedReader.__new__(ExpectedReader)
    found._lows = {"t": lows}
    return found


@pytest.mark.parametrize(
    ("lows", "partition", "bounds", "before", "mark"),
    [
        ({"0": 5}, -1, {"t": {"0": [1, 4]}}, {}, Mark.EXPIRED),
        ({"0": 5}, -1, {"t": {"0": [5, 9]}}, {}, Mark(0)),
        ({"0": 5}, -1, {"t": {"0": [1, 9]}}, {}, Mark.BOUNDARY),
        ({"0": 5, "1": 0}, -1, None, {"t": {"0": [5, 5]}}, Mark(0)),
        ({"0": 5, "1": 7}, -1, None, {"t": {"0": [5, 5]}}, Mark.BOUNDARY),
        ({"0": 5, "1": 7}, 0, None, {"t": {"0": [5, 5]}}, Mark(0)),
        ({"0": 5}, -1, None, {"t": {"0": [1, 4]}}, Mark.BOUNDARY),
        ({"0": 5}, -1, None, {"other": {"0": [9, 9]}}, Mark.BOUNDARY),
    ],
)
def test_an_output_is_safe_only_where_its_offset_is_known_to_be_kept(
    lows: dict[str, int], partition: int, bounds: Bounds | None, before: Bounds, mark: Mark
) -> None:
    assert reader(lows)._retained("t", partition, bounds, before) == mark


def test_the_offsets_before_a_delivery_are_kept_for_each_topic_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deliveries = [
        (1, None, Cursor(1), {"t": {"0": [5, 6], "1": [3, 3]}}),
        (2, Cursor(1), Cursor(2), {"t": {"0": [9, 9]}}),
        (3, Cursor(2), Cursor(3), {"other": {"0": [1, 1]}}),
        (4, Cursor(3), Cursor(4), None),
    ]
    monkeypatch.setattr(expected, "_deliveries", lambda *_: iter(deliveries))
    passed: Any = Passed(None, 1, 0, 1, 0, {})  # type: ignore[arg-type]
    assert passed.delivery_of(Cursor(4, "k")) == (
        None,
        {"t": {"0": [9, 9], "1": [3, 3]}, "other": {"0": [1, 1]}},
    )


def test_the_offsets_of_a_delivery_that_was_pruned_are_not_those_of_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = [(9, Cursor(5), Cursor(6), {"t": {"0": [50, 60]}})]
    monkeypatch.setattr(expected, "_deliveries", lambda *_: iter(kept))
    passed: Any = Passed(None, 1, 0, 1, 0, {})  # type: ignore[arg-type]
    assert passed.delivery_of(Cursor(5, "k")) == (None, {})
    assert passed.delivery_of(Cursor(6, "a")) == ({"t": {"0": [50, 60]}}, {})
