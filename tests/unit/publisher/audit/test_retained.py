"""What an audit knows of an output that the retention of its topic may have deleted."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from contract.cursor import Cursor
from publisher.audit.readback.digest import Mark
from publisher.audit.readback.expected import ExpectedReader, Passed, _deliveries
from publisher.outbox.sent_offsets import SentOffsets


def reader(lows: dict[str, int]) -> ExpectedReader:
    """A reader of an outbox whose topic `t` has these low watermarks."""
    nothing: Any = None
    state: Any = SimpleNamespace(topics=["t"], lows=[lows], seed="")
    return ExpectedReader(nothing, state, nothing, nothing)


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
    lows: dict[str, int], partition: int, bounds: SentOffsets | None, before: SentOffsets, mark: Mark
) -> None:
    assert reader(lows).retained("t", partition, bounds, before) == mark


def passed(*deliveries: tuple[object, ...], findings: list[str] | None = None) -> Passed:
    """The deliveries of a lane whose rows in outbox.delivery are these."""
    rows = [(*columns, None if offsets is None else json.dumps(offsets)) for *columns, offsets in deliveries]
    connection: Any = SimpleNamespace(execute=lambda *_: SimpleNamespace(fetchall=lambda: rows))
    return Passed(_deliveries(connection, 1, 0, 0, 1, [] if findings is None else findings), 0, {})


def test_the_offsets_before_a_delivery_are_kept_for_each_topic_partition() -> None:
    of_a_lane = passed(
        (1, None, None, 1, None, {"t": {"0": [5, 6], "1": [3, 3]}}),
        (2, 1, None, 2, None, {"t": {"0": [9, 9]}}),
        (3, 2, None, 3, None, {"other": {"0": [1, 1]}}),
        (4, 3, None, 4, None, None),
    )
    assert of_a_lane.delivery_of(Cursor(4, "k")) == (
        None,
        {"t": {"0": [9, 9], "1": [3, 3]}, "other": {"0": [1, 1]}},
    )


def test_the_offsets_of_a_delivery_that_was_pruned_are_not_those_of_the_next_one() -> None:
    kept = passed((9, 5, None, 6, None, {"t": {"0": [50, 60]}}))
    assert kept.delivery_of(Cursor(5, "k")) == (None, {})
    assert kept.delivery_of(Cursor(6, "a")) == ({"t": {"0": [50, 60]}}, {})


def test_offsets_that_no_publisher_writes_are_a_finding_and_excuse_no_lost_output() -> None:
    """Of an empty range all offsets are below the low watermark, and so of an output that nobody sent."""
    findings: list[str] = []
    forged = passed(
        (1, None, None, 1, None, {"t": {"0": [5, 6]}}), (2, 1, None, 2, None, {"t": {}}), findings=findings
    )
    for _ in range(2):
        bounds, before = forged.delivery_of(Cursor(2, "k"))
        assert reader({"0": 5}).retained("t", -1, bounds, before) == Mark(0)
    (finding,) = findings
    assert finding.startswith(
        "epoch 1, lane 0, delivery 2: `outbox.delivery.kafka_offsets` has '{\"t\": {}}', which no publisher writes"
    )
